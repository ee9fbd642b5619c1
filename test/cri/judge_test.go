package cri

import (
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

func TestJudge(t *testing.T) {
	spec := func(name string, state types.SpecState, message string) types.SpecReport {
		return types.SpecReport{
			ContainerHierarchyTexts: []string{"Pods"}, LeafNodeText: name, LeafNodeType: types.NodeTypeIt,
			State: state, Failure: types.Failure{Message: message},
		}
	}
	lacking := map[string]string{"Pods use SELinux": "the kernel lacks it"}
	lackingSpec := spec("use SELinux", types.SpecStateSkipped, "no SELinux")
	for name, c := range map[string]struct {
		spec    types.SpecReport
		passed  int
		problem string // the one there must be; none if empty
	}{
		"a spec that passes is counted":              {spec("run", types.SpecStatePassed, ""), 1, ""},
		"a failure is told with its cause":           {spec("run", types.SpecStateFailed, "no pod"), 0, "no pod"},
		"a panic is a failure":                       {spec("run", types.SpecStatePanicked, "nil"), 0, "nil"},
		"a spec may not be skipped":                  {spec("run", types.SpecStateSkipped, "not supported"), 0, "not supported"},
		"a spec that was not reached did not pass":   {spec("run", types.SpecStatePending, ""), 0, "did not run"},
		"a failure before all specs is one":          {types.SpecReport{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStateFailed, Failure: types.Failure{Message: "no socket"}}, 0, "no socket"},
		"what runs before all specs is not counted":  {types.SpecReport{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed}, 0, ""},
		"measurements are neither":                   {spec("benchmark of pods", types.SpecStateSkipped, ""), 0, ""},
		"a spec listed as lacking that fails, fails": {spec("use SELinux", types.SpecStateFailed, "denied"), 0, "denied"},
		"the list must be true":                      {spec("use SELinux", types.SpecStatePassed, ""), 0, "the kernel lacks it"},
	} {
		t.Run(name, func(t *testing.T) {
			specs := types.SpecReports{c.spec}
			if c.spec.LeafNodeText != lackingSpec.LeafNodeText {
				specs = append(specs, lackingSpec)
			}
			passed, problems := judge(specs, lacking)
			if passed != c.passed {
				t.Errorf("%d passed, want %d", passed, c.passed)
			}
			if c.problem == "" && len(problems) > 0 || c.problem != "" && (len(problems) != 1 || !strings.Contains(problems[0], c.problem)) {
				t.Errorf("problems: %q, want one with %q", problems, c.problem)
			}
		})
	}
	if _, problems := judge(nil, lacking); len(problems) != 1 {
		t.Errorf("problems: %q, want one of the spec that there is no more", problems)
	}
}
