package podconfig

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// objectReferences refuses what a static pod may not refer to: anything that only
// an API server could give it.
func (c *checker) objectReferences(path *field.Path) {
	refuse := func(path *field.Path, what string) {
		c.forbidden(path, "static pods may not reference "+what)
	}
	s := c.spec
	if s.ServiceAccountName != "" {
		refuse(path.Child("serviceAccountName"), "serviceaccounts")
	}
	for i := range s.ImagePullSecrets {
		refuse(path.Child("imagePullSecrets").Index(i), "secrets")
	}
	if len(s.ResourceClaims) > 0 {
		refuse(path.Child("resourceClaims"), "resourceclaims")
	}
	indexes := map[runtime.ContainerKind]int{}
	for kind, ctr := range runtime.Containers(s) {
		path := path.Child(listOf(kind)).Index(indexes[kind])
		indexes[kind]++
		for i := range ctr.EnvFrom {
			path := path.Child("envFrom").Index(i)
			if ctr.EnvFrom[i].SecretRef != nil {
				refuse(path.Child("secretRef"), "secrets")
			}
			if ctr.EnvFrom[i].ConfigMapRef != nil {
				refuse(path.Child("configMapRef"), "configmaps")
			}
		}
		for i := range ctr.Env {
			from, path := ctr.Env[i].ValueFrom, path.Child("env").Index(i).Child("valueFrom")
			if from != nil && from.SecretKeyRef != nil {
				refuse(path.Child("secretKeyRef"), "secrets")
			}
			if from != nil && from.ConfigMapKeyRef != nil {
				refuse(path.Child("configMapKeyRef"), "configmaps")
			}
		}
	}
	for i := range s.Volumes {
		if what := volumeObject(&s.Volumes[i]); what != "" {
			refuse(path.Child("volumes").Index(i), what)
		}
	}
}

func listOf(kind runtime.ContainerKind) string {
	switch kind {
	case runtime.InitContainer:
		return "initContainers"
	case runtime.EphemeralContainer:
		return "ephemeralContainers"
	default:
		return "containers"
	}
}

// volumeObject names the API object that a volume needs, or is empty.
func volumeObject(v *v1.Volume) string {
	switch {
	case v.ConfigMap != nil:
		return "configmaps (via configmap volumes)"
	case v.Secret != nil:
		return "secrets (via secret volumes)"
	case v.CSI != nil:
		return "csidrivers (via CSI volumes)"
	case v.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)"
	case v.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims"
	case v.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)"
	case v.AzureFile != nil:
		return "secrets (via azureFile volumes)"
	case hasSecretRef(v):
		return "secrets"
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if what := projectedObject(&v.Projected.Sources[i]); what != "" {
				return what
			}
		}
	}
	return ""
}

// hasSecretRef reports whether a network volume takes its credentials from a
// secret.
func hasSecretRef(v *v1.Volume) bool {
	return v.CephFS != nil && v.CephFS.SecretRef != nil ||
		v.Cinder != nil && v.Cinder.SecretRef != nil ||
		v.FlexVolume != nil && v.FlexVolume.SecretRef != nil ||
		v.ISCSI != nil && v.ISCSI.SecretRef != nil ||
		v.RBD != nil && v.RBD.SecretRef != nil ||
		v.ScaleIO != nil && v.ScaleIO.SecretRef != nil ||
		v.StorageOS != nil && v.StorageOS.SecretRef != nil
}

func projectedObject(s *v1.VolumeProjection) string {
	switch {
	case s.ConfigMap != nil:
		return "configmaps (via projected volumes)"
	case s.Secret != nil:
		return "secrets (via projected volumes)"
	case s.ServiceAccountToken != nil:
		return "serviceaccounts (via projected volumes)"
	case s.ClusterTrustBundle != nil:
		return "clustertrustbundles"
	case s.PodCertificate != nil:
		return "podcertificates"
	default:
		return ""
	}
}
