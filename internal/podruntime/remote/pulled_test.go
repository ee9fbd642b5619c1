package remote

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/db"
	"github.com/berth-run/berth/internal/lifecycle"
)

func TestWhoMayUseAnImage(t *testing.T) {
	login := func(uid types.UID, name, hash string) SecretLogin {
		return SecretLogin{UID: uid, Namespace: "default", Name: name, Hash: hash}
	}
	with := func(logins ...*SecretLogin) (a access) {
		for _, l := range logins {
			a = a.with(l)
		}
		return a
	}
	one, two, object := login("", "one", "1"), login("", "two", "2"), login("uid", "object", "3")
	rotated, elsewhere, unhashed := login("uid", "object", "4"), login("", "elsewhere", "1"), login("", "one", "")
	renewed := login("", "one", "5")
	for name, c := range map[string]struct {
		access access
		has    []SecretLogin
		want   bool
	}{
		"nobody has pulled it":                             {access{}, []SecretLogin{one}, false},
		"it was pulled without a secret":                   {with(nil), nil, true},
		"it was pulled with a secret and then without":     {with(&one, nil), nil, true},
		"it was pulled without a secret and then with":     {with(nil, &one), nil, true},
		"the pod has no secret":                            {with(&one), nil, false},
		"the pod has the secret":                           {with(&one), []SecretLogin{two, one}, true},
		"the pod has another secret":                       {with(&one), []SecretLogin{two}, false},
		"the pod has the same login in another secret":     {with(&one), []SecretLogin{elsewhere}, true},
		"either of two secrets will do":                    {with(&one, &two), []SecretLogin{one}, true},
		"a secret of the API has a new login":              {with(&object), []SecretLogin{rotated}, true},
		"a secret of a file has a new login":               {with(&one), []SecretLogin{renewed}, false},
		"logins that could not be hashed are not the same": {with(&unhashed), []SecretLogin{unhashed}, false},
	} {
		if got := c.access.allows(c.has); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if a := with(&object, &one, &rotated); len(a.Secrets) != 2 || a.Secrets[1] != rotated {
		t.Errorf("the old login of a secret is kept: %v", a)
	}
	var many access
	for i := range maxSecretLogins + 5 {
		many = many.with(&SecretLogin{Name: fmt.Sprint(i), Hash: fmt.Sprint(i)})
	}
	if len(many.Secrets) != maxSecretLogins || many.Secrets[maxSecretLogins-1].Name != fmt.Sprint(maxSecretLogins+4) {
		t.Errorf("%d logins are kept, the last is %v", len(many.Secrets), many.Secrets[len(many.Secrets)-1])
	}
}

// secretsByName are Sources with pull secrets, whose login is name:name, for
// registry.example.
type secretsByName []string

func (secretsByName) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

func (s secretsByName) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	for _, have := range s {
		if have == name {
			return &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
				Data: map[string][]byte{corev1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{"registry.example":{"username":%q,"password":%q}}}`, name, name)},
			}, nil
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}

// privateRegistry is a node whose registry lets nobody but "good" in.
type privateRegistry struct {
	*fakeCRI
	t       *testing.T
	file    string
	db      *db.DB
	runtime *Runtime
}

func newPrivateRegistry(t *testing.T) *privateRegistry {
	t.Helper()
	n := &privateRegistry{fakeCRI: newFakeCRI(), t: t, file: filepath.Join(t.TempDir(), "db")}
	n.onPull = func(_ context.Context, _ string, auth *runtimeapi.AuthConfig) error {
		if auth.GetUsername() != "good" {
			return errors.New("denied")
		}
		return nil
	}
	n.restart()
	t.Cleanup(func() { n.db.Close() })
	return n
}

// restart is a new agent on what the last one left on disk.
func (n *privateRegistry) restart() {
	n.t.Helper()
	if n.db != nil {
		if err := n.db.Close(); err != nil {
			n.t.Fatal(err)
		}
	}
	var err error
	if n.db, err = db.Open(db.Config{Path: n.file}); err != nil {
		n.t.Fatal(err)
	}
	n.runtime = onFake(n.t, n.fakeCRI, func(c *Config) { c.Pulls, c.Sources = n.db, secretsByName{"good", "bad"} })
}

// use is what comes of a pod that wants an image: "" if it got it, else the
// reason why not; and how often the registry was asked.
func (n *privateRegistry) use(image string, policy corev1.PullPolicy, secrets ...string) (reason string, asked int) {
	n.t.Helper()
	pod := simplePod()
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = image, policy
	for _, s := range secrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	before := n.count("PullImage")
	_, err := n.runtime.Do(n.t.Context(), pod, lifecycle.Action{Kind: lifecycle.PullImage, Container: "app"})
	var failed *lifecycle.Failed
	if err != nil && !errors.As(err, &failed) {
		n.t.Fatal(err)
	}
	if failed != nil {
		reason = failed.Reason
	}
	return reason, n.count("PullImage") - before
}

func (n *privateRegistry) expect(what, reason string, asked int, image string, policy corev1.PullPolicy, secrets ...string) {
	n.t.Helper()
	if got, times := n.use(image, policy, secrets...); got != reason || times != asked {
		n.t.Errorf("%s: %q, the registry was asked %d times; want %q, %d", what, got, times, reason, asked)
	}
}

const privateImage = "registry.example/app:1"

// KEP-2535: that an image is here gives no pod a right to it.
func TestImageOfASecretIsForPodsThatHaveIt(t *testing.T) {
	n := newPrivateRegistry(t)
	n.expect("the first pod pulls", "", 1, privateImage, corev1.PullIfNotPresent, "good")
	for range 2 {
		n.expect("a pod with the secret", "", 0, privateImage, corev1.PullIfNotPresent, "good")
		n.expect("a pod with the secret that never pulls", "", 0, privateImage, corev1.PullNever, "good")
		n.expect("a pod without", "ErrImagePull", 1, privateImage, corev1.PullIfNotPresent)
		n.expect("a pod with a wrong one", "ErrImagePull", 1, privateImage, corev1.PullIfNotPresent, "bad")
		n.expect("a pod without that never pulls", "ErrImageNeverPull", 0, privateImage, corev1.PullNever)
		n.restart()
	}
	n.onPull = nil // the registry lets everybody in
	n.expect("a pod without, of a registry that is open", "", 1, privateImage, corev1.PullIfNotPresent)
	n.onPull = func(context.Context, string, *runtimeapi.AuthConfig) error { return errors.New("denied") }
	n.expect("a pod without, of an image that another got without", "", 0, privateImage, corev1.PullIfNotPresent)
}

func TestImagesThatNoPodPulledAreForAll(t *testing.T) {
	n := newPrivateRegistry(t)
	n.images[privateImage] = &runtimeapi.Image{Id: "sha256:imported", RepoTags: []string{privateImage}}
	n.expect("a pod without", "", 0, privateImage, corev1.PullIfNotPresent)
	n.expect("a pod that never pulls", "", 0, privateImage, corev1.PullNever)

	n.expect("the first pod of another pulls", "", 1, "registry.example/other:1", corev1.PullIfNotPresent, "good")
	n.expect("a pod without", "ErrImagePull", 1, "registry.example/other:1", corev1.PullIfNotPresent)
	n.runtime.Preloaded(n.images["registry.example/other:1"].GetId())
	n.expect("a pod without, of an image imported since", "", 0, "registry.example/other:1", corev1.PullIfNotPresent)
	n.restart()
	n.expect("a pod without, after a restart", "", 0, "registry.example/other:1", corev1.PullIfNotPresent)
}

// A name that an image had before it was pulled under another one stays for all.
func TestPullOfAnImageLeavesItsOtherNames(t *testing.T) {
	n := newPrivateRegistry(t)
	imported := &runtimeapi.Image{Id: "sha256:both", RepoTags: []string{"example.com/mine:1", "registry.example/app:1"}}
	n.images["example.com/mine:1"] = imported
	n.expect("by the name it was imported with", "", 0, "example.com/mine:1", corev1.PullIfNotPresent)
	n.runtime.pulled.came(imported, mustParse(t, privateImage), &SecretLogin{Name: "good", Hash: "1"})
	n.images[privateImage] = imported
	n.expect("by the name it was imported with, after the pull", "", 0, "example.com/mine:1", corev1.PullIfNotPresent)
	n.expect("by the name it was pulled by", "ErrImagePull", 1, privateImage, corev1.PullIfNotPresent)
}

func TestRemovedImageIsForgotten(t *testing.T) {
	n := newPrivateRegistry(t)
	n.expect("the first pod pulls", "", 1, privateImage, corev1.PullIfNotPresent, "good")
	n.expect("a second image", "", 1, "registry.example/stays:1", corev1.PullIfNotPresent, "good")
	img := n.images[privateImage]
	n.change(func() { delete(n.images, privateImage); delete(n.images, img.GetId()) })
	if err := n.runtime.ImagesRemoved(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.change(func() { n.images[privateImage] = img }) // imported by somebody
	n.restart()
	n.expect("a pod without", "", 0, privateImage, corev1.PullIfNotPresent)
	n.expect("a pod without, of the image that stayed", "ErrImagePull", 1, "registry.example/stays:1", corev1.PullIfNotPresent)
}

// An agent that ends between the pull and its record has not made the image one
// for all, and a pod's failure to pull it does not either.
func TestPullThatWasCutOffOpensNothing(t *testing.T) {
	n := newPrivateRegistry(t)
	if err := n.runtime.pulled.begin(t.Context(), mustParse(t, "registry.example/app:1")); err != nil {
		t.Fatal(err)
	}
	n.images[privateImage] = &runtimeapi.Image{Id: "sha256:came", RepoTags: []string{privateImage}}
	n.images["registry.example/copy:1"] = n.images[privateImage]
	n.expect("a pod without, while another pulls", "ErrImagePull", 1, privateImage, corev1.PullIfNotPresent)
	n.restart()
	for range 2 {
		n.expect("a pod without", "ErrImagePull", 1, privateImage, corev1.PullIfNotPresent)
		n.expect("a pod with a wrong secret", "ErrImagePull", 1, privateImage, corev1.PullIfNotPresent, "bad")
		n.expect("a pod without, by another name of it", "ErrImagePull", 1, "registry.example/copy:1", corev1.PullIfNotPresent)
		if err := n.runtime.ImagesRemoved(t.Context()); err != nil { // this one was not
			t.Fatal(err)
		}
	}
	n.expect("a pod with the secret", "", 1, privateImage, corev1.PullIfNotPresent, "good")
	n.expect("and one more", "", 0, privateImage, corev1.PullIfNotPresent, "good")
	if left, err := n.db.All(pullingBucket); err != nil || len(left) != 0 {
		t.Errorf("pulls that are over are remembered: %q, %v", left, err)
	}
}

// A pull that is called off and has changed nothing closes no image.
func TestPullThatIsCalledOffClosesNothing(t *testing.T) {
	n := newPrivateRegistry(t)
	n.images[privateImage] = &runtimeapi.Image{Id: "sha256:imported", RepoTags: []string{privateImage}}
	ctx, cancel := context.WithCancel(t.Context())
	n.onPull = func(ctx context.Context, _ string, _ *runtimeapi.AuthConfig) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}
	pod := simplePod()
	pod.Spec.Containers[0].Image, pod.Spec.Containers[0].ImagePullPolicy = privateImage, corev1.PullAlways
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "good"}}
	if _, err := n.runtime.Do(ctx, pod, lifecycle.Action{Kind: lifecycle.PullImage, Container: "app"}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	n.expect("a pod without", "", 0, privateImage, corev1.PullIfNotPresent)
}

func mustParse(t *testing.T, image string) reference.Named {
	t.Helper()
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		t.Fatal(err)
	}
	return named
}
