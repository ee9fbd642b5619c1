package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/db"
)

// Buckets of the database. Its file is readable by root only.
const (
	configMapsBucket = "configmaps"
	secretsBucket    = "secrets"
)

// objects are the ConfigMaps and Secrets that pods may use, remembered on disk:
// pods that outlive their agent may need them again. Safe for concurrent use;
// the objects in it are not changed.
type objects struct {
	db *db.DB

	mu         sync.Mutex
	configMaps map[types.NamespacedName]*corev1.ConfigMap
	secrets    map[types.NamespacedName]*corev1.Secret
}

func newObjects(d *db.DB) (*objects, error) {
	o := &objects{db: d}
	var err error
	if o.configMaps, err = loadObjects[corev1.ConfigMap](d, configMapsBucket); err != nil {
		return nil, err
	}
	if o.secrets, err = loadObjects[corev1.Secret](d, secretsBucket); err != nil {
		return nil, err
	}
	return o, nil
}

func loadObjects[T any](d *db.DB, bucket string) (map[types.NamespacedName]*T, error) {
	all, err := d.All(bucket)
	if err != nil {
		return nil, fmt.Errorf("cannot read the %s of earlier runs: %w", bucket, err)
	}
	objs := make(map[types.NamespacedName]*T, len(all))
	for key, data := range all {
		namespace, name, _ := strings.Cut(key, "/")
		obj := new(T)
		if err := json.Unmarshal(data, obj); err != nil {
			d.Delete(bucket, key) // it will be given again with the pods that need it
			continue
		}
		objs[types.NamespacedName{Namespace: namespace, Name: name}] = obj
	}
	return objs, nil
}

func (o *objects) keep(bucket string, key types.NamespacedName, obj any) {
	data, err := json.Marshal(obj)
	if err != nil {
		panic(fmt.Sprintf("agent: an object that was decoded cannot be encoded: %v", err))
	}
	o.db.Put(bucket, key.String(), data)
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
		o.keep(configMapsBucket, key, c)
	}
	for _, s := range secrets {
		key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		if old := o.secrets[key]; old == nil || !maps.EqualFunc(old.Data, s.Data, func(a, b []byte) bool { return string(a) == string(b) }) {
			changed[s.Namespace] = true
		}
		o.secrets[key] = s
		o.keep(secretsBucket, key, s)
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
