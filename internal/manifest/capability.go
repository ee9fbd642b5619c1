package manifest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/pkg/cap"
	corev1 "k8s.io/api/core/v1"
)

// capabilityNames are all there are, as manifests write them, ALL first.
var capabilityNames = sync.OnceValue(func() []string {
	var names []string
	for _, name := range cap.Known() {
		names = append(names, strings.TrimPrefix(name, "CAP_"))
	}
	slices.Sort(names)
	return append([]string{"ALL"}, names...)
})

// capabilities reports names that are no capability's. Kubernetes takes any, and
// runtimes leave out what they don't know: one that is misspelled in drop would
// stay.
func (c *checker) capabilities(spec *corev1.PodSpec) {
	check := func(names []corev1.Capability, path string) {
		for i, n := range names {
			name := strings.TrimPrefix(strings.ToUpper(string(n)), "CAP_")
			if slices.Contains(capabilityNames(), name) {
				continue
			}
			hint := "there are " + strings.Join(capabilityNames(), ", ")
			if near, _ := nearest(name, capabilityNames()); near != "" {
				hint = "did you mean " + near + "?"
			}
			c.report(Problem{Field: fmt.Sprintf("%s[%d]", path, i), Rule: RuleInvalid, Message: quoted(string(n)) + " is no capability", Hint: hint})
		}
	}
	for list, containers := range map[string][]corev1.Container{"containers": spec.Containers, "initContainers": spec.InitContainers} {
		for i := range containers {
			if sc := containers[i].SecurityContext; sc != nil && sc.Capabilities != nil {
				path := fmt.Sprintf("spec.%s[%d].securityContext.capabilities", list, i)
				check(sc.Capabilities.Add, path+".add")
				check(sc.Capabilities.Drop, path+".drop")
			}
		}
	}
}
