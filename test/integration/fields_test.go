package integration

import (
	"os"
	"strings"
	"testing"
)

// Each field that a container can be given has the value it has in the cluster's
// API, or what stands for it on one machine.
func TestFieldsOfThePodAreVariables(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var env, names []string
	want := map[string]string{
		"NAME": "metadata.name", "SPACE": "metadata.namespace", "LABEL": "metadata.labels['of.test/a']", "NOTE": "metadata.annotations['none']",
		"NODE": "spec.nodeName", "HOST": "status.hostIP", "HOSTS": "status.hostIPs",
	}
	values := map[string]string{"NAME": "fields", "SPACE": "default", "LABEL": "", "NOTE": "", "NODE": strings.ToLower(host), "HOST": hostIP, "HOSTS": hostIP}
	for name, path := range want {
		env = append(env, "- {name: "+name+", valueFrom: {fieldRef: {fieldPath: \""+path+"\"}}}")
		names = append(names, name)
	}
	out := inside(t, "fields", "args: [env, "+strings.Join(names, ", ")+"]\nenv:\n"+strings.Join(env, "\n"), "nodeName: elsewhere")
	lines := strings.Split(out, "\n")
	for i, name := range names {
		if lines[i] != values[name] {
			t.Errorf("%s is %q, want %q", want[name], lines[i], values[name])
		}
	}
}
