package podconfig

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Container returns the config of one container of the pod, of any kind. Its
// error names every problem at once.
func Container(pod *corev1.Pod, c *corev1.Container, f ContainerFacts) (*runtimeapi.ContainerConfig, error) {
	env := buildEnv(pod, c, f)
	problems := env.problems
	for _, d := range c.VolumeDevices {
		problems = append(problems, fmt.Sprintf("volume device %q: berth has no block volumes; mount the device with a hostPath volume", d.Name))
	}
	mounts, mountProblems := buildMounts(pod, c, f, env)
	problems = append(problems, mountProblems...)
	security, err := containerSecurity(pod, c, f)
	if err != nil {
		problems = append(problems, err.Error())
	}
	signal, err := stopSignal(c)
	if err != nil {
		problems = append(problems, err.Error())
	}
	annotations, err := containerAnnotations(pod, c, f.ContainerAttempt)
	if err != nil {
		problems = append(problems, err.Error())
	}
	if len(problems) > 0 {
		return nil, configFailed(problems...)
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(f.ContainerAttempt)},
		Image:       &runtimeapi.ImageSpec{Image: f.ImageRef, UserSpecifiedImage: c.Image},
		Command:     env.expandAll(c.Command),
		Args:        env.expandAll(c.Args),
		WorkingDir:  c.WorkingDir,
		Envs:        env.keyValues(),
		Mounts:      mounts,
		Devices:     f.Devices,
		Labels:      containerLabels(pod, c),
		Annotations: annotations,
		LogPath:     LogPath(c.Name, f.ContainerAttempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  signal,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       linuxResources(pod, c, f.Facts),
			SecurityContext: security,
		},
	}, nil
}

// stopSignal is the signal that asks the container to end; the zero value
// leaves it to the image.
func stopSignal(c *corev1.Container) (runtimeapi.Signal, error) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, nil
	}
	name := string(*c.Lifecycle.StopSignal)
	n, ok := runtimeapi.Signal_value["SIGNAL_"+strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)]
	if !ok || !strings.HasPrefix(name, "SIG") {
		return 0, fmt.Errorf("lifecycle.stopSignal %q is unknown; use a name like SIGTERM", name)
	}
	return runtimeapi.Signal(n), nil
}
