package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/podconfig/internal/podvalidation"
)

// SetDefaults sets the defaults of a pod in place, as the API server (1.37) does, so that
// a pod from a manifest is as it would be in a cluster. It ignores volume types that need
// an API server or are no longer served. A podconfig.Mux sets them on a copy of each pod.
func SetDefaults(pod *v1.Pod) { podvalidation.SetDefaults(pod) }

// Validate checks a normalized static pod. It checks the fields that a node acts on, as
// the API server (1.37) checks them on creation: metadata, containers, ports,
// environment, volumes and mounts, probes and hooks, resources, security, DNS and host
// names, tolerations. It ignores affinity, topology spread and other fields for schedulers, finalizers, Windows
// options, the content of network volumes and of projected pod certificates, the names of secrets and config maps in
// references, the deletion cost, and the old annotations for tolerations, seccomp and AppArmor. The fields of the
// errors are those of the API server.
//
// It also returns an error for each reference that [Options.Allow] does not permit.
func Validate(pod *v1.Pod, opts Options) field.ErrorList { return validate(pod, nil, opts) }

func validate(pod *v1.Pod, root *field.Path, opts Options) field.ErrorList {
	return podvalidation.Validate(pod, root, podvalidation.Options{Allow: podvalidation.AllowedRefs(opts.Allow),
		Updated: opts.Updated})
}
