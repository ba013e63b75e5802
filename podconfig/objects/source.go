package objects

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The kinds of objects.
const (
	SecretKind    = "Secret"
	ConfigMapKind = "ConfigMap"
)

// Source has the secrets and config maps that pods refer to: files on disk
// ([github.com/kubeletkit/kubeletkit/podconfig/file.Objects]), an API server, an
// embedder's own control plane
// ([Store]). What it hands out
// is shared and must not be changed.
type Source interface {
	runtime.Objects
	// Watch tells of changes until ctx ends. It calls changed, in one call at a time,
	// with each object that has come, changed or gone since Watch was called. Without
	// any, all may have changed; so it calls first, as soon as lookups can be answered.
	// changed does not block.
	//
	// When Watch returns an error before ctx has ended, it is called again after a
	// back-off. When it returns nil, nothing will ever change again.
	Watch(ctx context.Context, changed func(refs []Ref)) error
}

// Ref names a secret or config map.
type Ref struct {
	// Kind is [SecretKind] or [ConfigMapKind].
	Kind            string
	Namespace, Name string
}

// String returns the reference as it stands in messages, as in "secret default/db".
func (r Ref) String() string {
	return strings.ToLower(r.Kind) + " " + r.Namespace + "/" + r.Name
}

// RefOf returns the reference to a *v1.Secret or a *v1.ConfigMap; for anything else
// its kind is empty.
func RefOf(object metav1.Object) Ref {
	ref := Ref{Namespace: object.GetNamespace(), Name: object.GetName()}
	switch object.(type) {
	case *v1.Secret:
		ref.Kind = SecretKind
	case *v1.ConfigMap:
		ref.Kind = ConfigMapKind
	}
	return ref
}

// References returns the secrets and config maps that a pod refers to, each once,
// whether or not it can do without: those of its images, of its containers'
// environments, and of secret, config map and projected volumes.
func References(pod *v1.Pod) []Ref {
	var refs []Ref
	seen := map[Ref]bool{}
	add := func(kind, name string) {
		ref := Ref{kind, pod.Namespace, name}
		if name != "" && !seen[ref] {
			seen[ref] = true
			refs = append(refs, ref)
		}
	}
	for i := range pod.Spec.ImagePullSecrets {
		add(SecretKind, pod.Spec.ImagePullSecrets[i].Name)
	}
	for _, c := range runtime.Containers(&pod.Spec) {
		for i := range c.EnvFrom {
			if s := c.EnvFrom[i].SecretRef; s != nil {
				add(SecretKind, s.Name)
			}
			if m := c.EnvFrom[i].ConfigMapRef; m != nil {
				add(ConfigMapKind, m.Name)
			}
		}
		for i := range c.Env {
			from := c.Env[i].ValueFrom
			if from != nil && from.SecretKeyRef != nil {
				add(SecretKind, from.SecretKeyRef.Name)
			}
			if from != nil && from.ConfigMapKeyRef != nil {
				add(ConfigMapKind, from.ConfigMapKeyRef.Name)
			}
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Secret != nil {
			add(SecretKind, v.Secret.SecretName)
		}
		if v.ConfigMap != nil {
			add(ConfigMapKind, v.ConfigMap.Name)
		}
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			if s := v.Projected.Sources[j].Secret; s != nil {
				add(SecretKind, s.Name)
			}
			if m := v.Projected.Sources[j].ConfigMap; m != nil {
				add(ConfigMapKind, m.Name)
			}
		}
	}
	return refs
}
