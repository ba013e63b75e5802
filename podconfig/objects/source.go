package objects

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The kinds of objects.
const (
	SecretKind    = "Secret"
	ConfigMapKind = "ConfigMap"
)

// Source looks up the secrets and config maps that pods refer to, and reports their
// changes. Its methods are safe for concurrent use. Objects that it returns are
// shared and must not be changed.
//
// [Store] is a Source in memory. Package podconfig/file has a Source that reads files.
type Source interface {
	runtime.Objects
	// Watch reports changes until ctx ends. It calls changed with the objects that were
	// added, changed or removed since Watch was called. An empty list means that any
	// object may have changed. The first call is such a call: Watch makes it as soon as
	// lookups can be answered. Calls do not overlap, and changed does not block.
	//
	// If Watch returns an error before ctx ends, it is called again after a back-off.
	// If it returns nil, no object changes any more.
	Watch(ctx context.Context, changed func(refs []Ref)) error
}

// Ref identifies a secret or config map.
type Ref struct {
	// Kind is [SecretKind] or [ConfigMapKind].
	Kind            string
	Namespace, Name string
}

// String returns the reference as messages have it, for example "secret default/db".
func (r Ref) String() string {
	return strings.ToLower(r.Kind) + " " + r.Namespace + "/" + r.Name
}

// RefOf returns the reference to a *v1.Secret or a *v1.ConfigMap. For any other type
// the kind is empty.
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

// References returns the secrets and config maps that a pod refers to, each once: its
// image pull secrets, and those of environment variables and of secret, config map and
// projected volumes that a container uses, see [podspec.UsedVolumes]. Optional references
// are included.
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
	for _, c := range podspec.Containers(&pod.Spec) {
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
	for v := range podspec.UsedVolumes(&pod.Spec) {
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
