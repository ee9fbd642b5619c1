package lifecycle

import (
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
)

// ContainerHash changes when a container must be killed and made anew: with its
// name or image, the fields that may change in a pod's spec without making it
// another pod (source: kubelet 1.37; resources change in place).
func ContainerHash(c *corev1.Container) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "%q/%q", c.Name, c.Image)
	return fmt.Sprintf("%08x", h.Sum32())
}
