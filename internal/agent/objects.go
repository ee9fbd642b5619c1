package agent

import (
	"context"
	"maps"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// objects are the ConfigMaps and Secrets that pods may use. Safe for concurrent
// use; the objects in it are not changed.
type objects struct {
	mu         sync.Mutex
	configMaps map[types.NamespacedName]*corev1.ConfigMap
	secrets    map[types.NamespacedName]*corev1.Secret
}

func newObjects() *objects {
	return &objects{
		configMaps: make(map[types.NamespacedName]*corev1.ConfigMap),
		secrets:    make(map[types.NamespacedName]*corev1.Secret),
	}
}

// put adds or replaces objects and returns the namespaces in which something
// changed.
func (o *objects) put(configMaps []*corev1.ConfigMap, secrets []*corev1.Secret) map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	changed := make(map[string]bool)
	for _, c := range configMaps {
		key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		if old := o.configMaps[key]; old == nil || !reflect.DeepEqual(old.Data, c.Data) || !reflect.DeepEqual(old.BinaryData, c.BinaryData) {
			changed[c.Namespace] = true
		}
		o.configMaps[key] = c
	}
	for _, s := range secrets {
		key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		if old := o.secrets[key]; old == nil || !maps.EqualFunc(old.Data, s.Data, func(a, b []byte) bool { return string(a) == string(b) }) {
			changed[s.Namespace] = true
		}
		o.secrets[key] = s
	}
	return changed
}

// ConfigMap returns one; the error of one that is not there says so.
func (o *objects) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c, ok := o.configMaps[types.NamespacedName{Namespace: namespace, Name: name}]; ok {
		return c, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
}

// Secret returns one; the error of one that is not there says so.
func (o *objects) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s, ok := o.secrets[types.NamespacedName{Namespace: namespace, Name: name}]; ok {
		return s, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
}
