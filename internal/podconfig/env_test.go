package podconfig

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/lifecycle"
)

func TestEnvFileValues(t *testing.T) {
	tests := map[string]struct{ content, want, wantErr string }{
		"a value in quotes":                     {"KEY='a b'", "a b", ""},
		"the last line needs no end":            {"A='1'\nKEY='2'", "2", ""},
		"the first of two counts":               {"KEY='1'\nKEY='2'", "1", ""},
		"nothing is expanded":                   {`KEY='$A \n "'`, `$A \n "`, ""},
		"a value may span lines":                {"KEY='a\n# b\n\nc'", "a\n# b\n\nc", ""},
		"comments and blank lines are skipped":  {"\n  \n# KEY='no'\n\t KEY='yes' # why", "yes", ""},
		"DOS line ends are taken":               {"A='1'\r\nKEY='2'\r\n", "2", ""},
		"white space before the quote is empty": {"KEY= 'a'", "", ""},
		"a missing key is empty":                {"A='1'", "", ""},
		"an empty file is empty":                {"", "", ""},
		"no equals sign":                        {"A='1'\nexport KEY", "", "line 2 has no '='"},
		"no name":                               {"='1'", "", "line 1 has no name"},
		"white space after the name":            {"KEY ='1'", "", "white space before '='"},
		"no quotes":                             {"KEY=1", "", "not in single quotes"},
		"double quotes":                         {`KEY="1"`, "", "not in single quotes"},
		"an open quote":                         {"A='1'\nKEY='1\n2", "", "opened in line 2"},
		"something after the quote":             {"KEY='1'2", "", "something after the closing quote"},
		"a problem before the key":              {"A=1\nKEY='2'", "", "line 1"},
		"a problem after the key is not seen":   {"KEY='2'\nA=1", "2", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := envFileValue([]byte(tt.content), "KEY")
			if tt.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestEnvironmentRules(t *testing.T) {
	f := facts()
	f.ConfigMaps = map[string]*corev1.ConfigMap{
		"a": {Data: map[string]string{"X": "a", "only.a": "1"}},
		"b": {Data: map[string]string{"X": "b"}},
	}
	f.Secrets = map[string]*corev1.Secret{"nul": {Data: map[string][]byte{"k": {'a', 0}}}}
	configMap := func(name string) corev1.EnvFromSource {
		return corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
	}
	key := func(name, key string, optional bool) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: ptr.To(optional)}}
	}
	f.NodeName = "this"
	fieldRef := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	tests := map[string]struct {
		c       corev1.Container
		want    []string
		wantErr string
	}{
		"a later envFrom wins, the place stays the first": {corev1.Container{EnvFrom: []corev1.EnvFromSource{configMap("a"), configMap("b")}}, []string{"X=b", "only.a=1"}, ""},
		"env wins over envFrom":                           {corev1.Container{EnvFrom: []corev1.EnvFromSource{configMap("b")}, Env: []corev1.EnvVar{{Name: "X", Value: "env"}}}, []string{"X=env"}, ""},
		"env can use envFrom":                             {corev1.Container{EnvFrom: []corev1.EnvFromSource{configMap("b")}, Env: []corev1.EnvVar{{Name: "Y", Value: "<$(X)>"}}}, []string{"X=b", "Y=<b>"}, ""},
		"an optional key that is missing changes nothing": {corev1.Container{EnvFrom: []corev1.EnvFromSource{configMap("b")}, Env: []corev1.EnvVar{{Name: "X", ValueFrom: key("a", "no", true)}}}, []string{"X=b"}, ""},
		"an optional object that is missing too":          {corev1.Container{Env: []corev1.EnvVar{{Name: "X", ValueFrom: key("no", "no", true)}}}, nil, ""},
		"a required one fails":                            {corev1.Container{Env: []corev1.EnvVar{{Name: "X", ValueFrom: key("no", "no", false)}}}, nil, `environment variable X: configmap "no" not found in namespace default`},
		"a value with a NUL byte fails":                   {corev1.Container{EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "nul"}}}}}, nil, "NUL"},
		"a name with an equals sign fails":                {corev1.Container{EnvFrom: []corev1.EnvFromSource{{Prefix: "A=", ConfigMapRef: configMap("b").ConfigMapRef}}}, nil, "rename it"},
		"the node's name is that of this node":            {corev1.Container{Env: []corev1.EnvVar{{Name: "X", ValueFrom: fieldRef("spec.nodeName")}}}, []string{"X=this"}, ""},
		"the service account is the default one":          {corev1.Container{Env: []corev1.EnvVar{{Name: "X", ValueFrom: fieldRef("spec.serviceAccountName")}}}, []string{"X=default"}, ""},
		"an unknown field fails":                          {corev1.Container{Env: []corev1.EnvVar{{Name: "X", ValueFrom: fieldRef("spec.containers")}}}, nil, "spec.containers"},
	}
	pod := &corev1.Pod{}
	pod.Namespace, pod.Spec.NodeName = "default", "other"
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := Container(pod, &tt.c, f)
			if tt.wantErr != "" {
				var failed *lifecycle.Failed
				if !errors.As(err, &failed) || failed.Reason != lifecycle.ReasonCreateContainerConfigError || !strings.Contains(failed.Message, tt.wantErr) {
					t.Fatalf("error %v, want %q", err, tt.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, kv := range config.Envs {
				got = append(got, kv.Key+"="+string(kv.Value))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Everything a container's config is made of must be asked for.
func TestNeedsListsEachReferenceOnce(t *testing.T) {
	c := &corev1.Container{
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}},
		},
		Env: []corev1.EnvVar{
			{Name: "A", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "a"}}}},
			{Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "b"}}}},
			{Name: "C", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "t"}}}},
			{Name: "D", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: "p", Key: "1"}}},
			{Name: "E", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: "p", Key: "2"}}},
			{Name: "F", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "G", Value: "x"},
		},
	}
	want := Requirements{ConfigMaps: []string{"a", "b"}, Secrets: []string{"s", "t"}, EnvFiles: []EnvFile{{"v", "p"}}}
	if diff := cmp.Diff(want, Needs(c)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
