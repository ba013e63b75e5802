package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Values of [Options.Source].
const (
	SourceFile = "file"
	SourceHTTP = "http"
)

// Options are the settings of [Load] and of its steps [Decode], [Normalize] and
// [Validate]. Each field names the steps that read it.
type Options struct {
	// NodeName is the name of the node that the pods run on. Required by Normalize.
	NodeName string
	// Source is the kind of source, [SourceFile] or [SourceHTTP]. Normalize writes it
	// to the pod's annotation kubernetes.io/config.source. Default: SourceFile.
	//
	// A source of another kind may leave it empty, since a podconfig.Mux sets the
	// annotation to the name of the source. Only with SourceFile are derived UIDs unique
	// across nodes, and do pods get a toleration.
	Source string
	// Origin is the path of the file or the URL, or anything else that distinguishes two
	// manifests with the same content. Normalize derives UIDs from it.
	Origin string
	// KubeletVersion is the version of the kubelet whose UIDs Normalize derives, such as "1.36" or "v1.36.3", so that
	// a pod runs on if that kubelet takes the node over. Known are 1.35 to 1.37; of others, the nearest one counts.
	// Default: the version of the Kubernetes libraries of this module.
	KubeletVersion string

	// UID, if not nil, decides the UID of each pod without metadata.uid, such as
	// podconfig.Sink.StaticUID. Load calls it with the pod, which is complete and valid and has
	// the derived UID, and with a hash of its content, the node and the origin, which does not depend
	// on the version of this package. It must not change the pod, and not return an empty UID.
	UID func(pod *v1.Pod, manifest string) types.UID

	// Kinds are the kinds that Decode accepts, alone and in lists: [PodKind],
	// objects.SecretKind, objects.ConfigMapKind. Any other kind is an error.
	// Default: PodKind.
	Kinds []string
	// Warn, if not nil, has Decode read what kubelet reads, and receives what Decode ignores then: unknown and
	// duplicated fields, and all YAML documents but the first. A list is an error, except a PodList of [SourceHTTP]. A
	// manifest that begins with a secret or config map, which kubelet refuses, has no pods, and all of its documents
	// count. If Warn is nil, unknown and duplicated fields are errors, and all documents count.
	Warn func(error)

	// Allow are the references to API objects that Validate accepts. Default: none.
	Allow AllowedRefs
	// Updated is true for a pod of an API server, which may have been updated since its creation. Validate
	// then accepts ephemeral containers, which cannot be set on creation.
	Updated bool
}

// AllowedRefs are the references to objects of an API server that pods may have. Each
// field permits some of them. The zero value permits none: kubelet refuses static pods
// with such references, because without an API server they could never start.
type AllowedRefs struct {
	// Env permits environment variables from secrets and config maps. An objects.Source
	// must hold these.
	Env bool
	// PullSecrets permits image pull secrets. An objects.Source must hold them, or the
	// agent must have another way to find them.
	PullSecrets bool
	// Volumes permits secret and config map volumes, and projected volumes of secrets
	// and config maps. An objects.Source must hold these.
	Volumes bool
	// All permits every reference, also service accounts, claims and CSI drivers, and
	// validates projected volumes as the API server does. It is for pods that an API
	// server has accepted. Pods whose objects the node cannot provide wait for ever.
	All bool
}
