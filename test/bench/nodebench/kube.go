package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// label marks the pods of this program.
const label = "app=nodebench"

// kube is a node behind a Kubernetes API server.
type kube struct {
	pods corev1client.PodInterface
	node string
}

func newKube(kubeconfig, nodeName string) (*kube, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = 2000, 2000
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &kube{pods: cs.CoreV1().Pods("default"), node: nodeName}, nil
}

func (k *kube) create(ctx context.Context, pod *corev1.Pod) error {
	pod.Spec.NodeName = k.node
	_, err := k.pods.Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func (k *kube) delete(ctx context.Context, name string) error {
	return k.pods.Delete(ctx, name, metav1.DeleteOptions{})
}

func (k *kube) watch(ctx context.Context) (<-chan change, error) {
	list, err := k.pods.List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return nil, err
	}
	w, err := k.pods.Watch(ctx, metav1.ListOptions{LabelSelector: label, ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	out := make(chan change, 1024)
	go func() {
		defer close(out)
		defer w.Stop()
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				out <- change{name: p.Name, ready: isReady(&p.Status), gone: e.Type == watch.Deleted, status: &p.Status}
			}
		}
	}()
	return out, nil
}
