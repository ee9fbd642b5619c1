package remote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/berth-run/berth/internal/format"
	"github.com/berth-run/berth/internal/lifecycle"
	"github.com/berth-run/berth/internal/podruntime"
)

// pullContainerImage makes the image of a container present.
func (r *Runtime) pullContainerImage(ctx context.Context, pod *corev1.Pod, name string) (ref string, err error) {
	spec := containerSpec(pod, name)
	if spec == nil {
		return "", fmt.Errorf("the pod has no container %q any more", name)
	}
	return r.pull(ctx, pod, name, spec.Image, spec.ImagePullPolicy)
}

// pull makes an image present according to the policy and returns what to start
// from. container is empty for an image volume.
func (r *Runtime) pull(ctx context.Context, pod *corev1.Pod, container, image string, policy corev1.PullPolicy) (ref string, err error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", &lifecycle.Failed{
			Reason:  lifecycle.ReasonInvalidImageName,
			Message: fmt.Sprintf("Failed to apply default image tag %q: couldn't parse image name %q: %v", image, image, err),
		}
	}
	spec := &runtimeapi.ImageSpec{Image: withTag(image, named), UserSpecifiedImage: image}
	local := reference.Domain(named) == r.cfg.LocalRegistry
	if local {
		if err := r.cfg.MakeLocal(ctx, spec.Image); err != nil {
			return "", &lifecycle.Failed{Reason: lifecycle.ReasonErrImagePull, Message: fmt.Sprintf("cannot make image %q: %v", image, err)}
		}
	}
	if policy != corev1.PullAlways || local {
		present, err := r.present(ctx, spec)
		if err != nil {
			return "", err
		}
		usable := present != nil
		if usable && !local {
			if usable, err = r.mayUse(ctx, pod, spec.Image, named, present); err != nil {
				return "", err
			}
		}
		if usable {
			r.cfg.Recorder.Record(podruntime.PodRef(pod, container), corev1.EventTypeNormal, "Pulled",
				fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", image))
			return present.GetId(), nil
		}
	}
	switch {
	case policy == corev1.PullNever:
		// Also of one that is there and not for this pod, which must not learn of it.
		return "", &lifecycle.Failed{
			Reason:  lifecycle.ReasonErrImageNeverPull,
			Message: fmt.Sprintf("Container image %q is not present with pull policy of Never", image),
		}
	case local:
		return "", &lifecycle.Failed{
			Reason: lifecycle.ReasonErrImagePull,
			Message: fmt.Sprintf("cannot pull image %q: %s names images of this machine, and this one is not there; import it first",
				image, r.cfg.LocalRegistry),
		}
	}
	return r.fetch(ctx, pod, container, spec, named)
}

// withTag is the image as the runtime is asked for it: with the tag that stands
// for none, and otherwise as the user wrote it.
func withTag(image string, named reference.Named) string {
	if reference.IsNameOnly(named) {
		return image + ":latest"
	}
	return image
}

// present returns an image that is there; nil: it is not.
func (r *Runtime) present(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	response, err := r.cfg.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		return nil, &lifecycle.Failed{
			Reason:  lifecycle.ReasonImageInspectError,
			Message: fmt.Sprintf("Failed to inspect image %q: %v", spec.Image, err),
		}
	}
	return response.GetImage(), nil
}

// mayUse says whether a pod may use an image that is there without asking its
// registry. KEP-2535: an image that was pulled with a secret is for pods with that
// secret; another pod has to pull it, with what it has itself.
func (r *Runtime) mayUse(ctx context.Context, pod *corev1.Pod, image string, named reference.Named, present *runtimeapi.Image) (bool, error) {
	who, known := r.pulled.access(present, named)
	if !known || who.allows(nil) {
		return true, nil
	}
	logins, err := r.logins(ctx, pod, image)
	if err != nil {
		return false, &lifecycle.Failed{Reason: lifecycle.ReasonErrImagePull, Message: err.Error()}
	}
	var has []SecretLogin
	for _, l := range logins {
		if l.Secret != nil {
			has = append(has, *l.Secret)
		}
	}
	if who.allows(has) {
		return true, nil
	}
	// Not for the pod to know, but for who wonders why it pulls.
	r.cfg.Log.Info("an image is here, but the pod has no secret that it was pulled with: its registry decides",
		"pod", format.Pod(pod), "uid", pod.UID, "image", image)
	return false, nil
}

// fetch pulls the image, with each login in turn.
func (r *Runtime) fetch(ctx context.Context, pod *corev1.Pod, container string, spec *runtimeapi.ImageSpec, named reference.Named) (string, error) {
	began := time.Now()
	ref := podruntime.PodRef(pod, container)
	r.cfg.Recorder.Record(ref, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", spec.UserSpecifiedImage))
	select {
	case r.pulls <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-r.pulls }()
	pulling := time.Now()
	logins, err := r.logins(ctx, pod, spec.Image)
	if err != nil {
		return "", &lifecycle.Failed{Reason: lifecycle.ReasonErrImagePull, Message: err.Error()}
	}
	var known bool // who may use the image that came, or that none came
	if slices.ContainsFunc(logins, func(l Login) bool { return l.Secret != nil }) {
		before, err := r.present(ctx, spec)
		if err != nil {
			return "", err
		}
		if err := r.pulled.begin(ctx, named); err != nil {
			return "", &lifecycle.Failed{Reason: lifecycle.ReasonErrImagePull, Message: err.Error()}
		}
		defer func() {
			if !known { // it was cut off
				after, err := r.present(context.WithoutCancel(ctx), spec)
				known = err == nil && after.GetId() == before.GetId()
			}
			r.pulled.ended(named, !known)
		}()
	}
	progress := func(done, total int64) {
		r.cfg.Progress(Progress{Pod: pod, Container: container, Image: spec.UserSpecifiedImage, Done: done, Total: total})
	}
	var pulled string
	var used Login
	var errs []error
	for _, used = range logins {
		pulled, err = r.cfg.Puller.Pull(ctx, spec, used.Auth, progress)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		errs = append(errs, err)
	}
	if err != nil {
		known = true
		return "", pullFailed(spec.UserSpecifiedImage, errs)
	}
	message := fmt.Sprintf("Successfully pulled image %q in %s (%s including waiting)", spec.UserSpecifiedImage,
		time.Since(pulling).Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	response, err := r.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: pulled}, false)
	if err == nil && response.GetImage() != nil {
		known = true
		r.pulled.came(response.Image, named, used.Secret)
		message += fmt.Sprintf(". Image size: %d bytes.", response.Image.GetSize())
		// What was pulled may be a reference; the id is what starts.
		pulled = response.Image.GetId()
	}
	r.cfg.Recorder.Record(ref, corev1.EventTypeNormal, "Pulled", message)
	return pulled, nil
}

// Preloaded says that images were put on the machine, or fetched, by who runs it:
// each pod may use them.
func (r *Runtime) Preloaded(ids ...string) { r.pulled.forget(ids...) }

// ImagesRemoved says that images may be gone: what is known of their pulls goes too.
func (r *Runtime) ImagesRemoved(ctx context.Context) error {
	return r.pulled.prune(func() ([]*runtimeapi.Image, error) { return r.cfg.Images.ListImages(ctx, nil) })
}

// logins returns the logins to try: at least one, which may be none.
func (r *Runtime) logins(ctx context.Context, pod *corev1.Pod, image string) ([]Login, error) {
	var secrets []corev1.Secret
	for _, ref := range pod.Spec.ImagePullSecrets {
		s, err := r.cfg.Sources.Secret(ctx, pod.Namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			// As in the kubelet: the pull may work without.
			r.cfg.Log.Warn("image pull secret does not exist", "pod", format.Pod(pod), "secret", ref.Name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot get image pull secret %s/%s: %w", pod.Namespace, ref.Name, err)
		}
		secrets = append(secrets, *s)
	}
	logins, err := r.cfg.Credentials.Lookup(ctx, image, secrets)
	if err != nil {
		return nil, fmt.Errorf("cannot find logins for image %q: %w", image, err)
	}
	if len(logins) == 0 {
		return []Login{{}}, nil
	}
	return logins, nil
}

// pullFailed gives the errors of a pull, one for each login, their reason. The
// text is one line, which says nothing twice.
func pullFailed(image string, errs []error) error {
	reason := lifecycle.ReasonErrImagePull
	var unreachable *net.OpError
	var unknownHost *net.DNSError
	err := errors.Join(errs...)
	var texts []string
	for _, e := range errs {
		if text := strings.ReplaceAll(e.Error(), "\n", "; "); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	text := strings.Join(texts, "; ")
	switch {
	case strings.Contains(text, crierrors.ErrSignatureValidationFailed.Error()):
		reason = crierrors.ErrSignatureValidationFailed.Error()
	case errors.As(err, &unreachable), errors.As(err, &unknownHost),
		strings.Contains(text, crierrors.ErrRegistryUnavailable.Error()):
		reason = lifecycle.ReasonRegistryUnavailable
	}
	if !strings.Contains(text, image) {
		text = fmt.Sprintf("cannot pull image %q: %s", image, text)
	}
	return &lifecycle.Failed{Reason: reason, Message: text}
}
