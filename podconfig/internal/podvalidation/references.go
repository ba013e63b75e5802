package podvalidation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// objectReferences refuses references to objects of an API server, except those that
// are allowed.
func (c *checker) objectReferences(path *field.Path, allow AllowedRefs) {
	s := c.spec
	if s.ServiceAccountName != "" {
		c.refuseReference(path.Child("serviceAccountName"), "serviceaccounts")
	}
	if !allow.PullSecrets {
		for i := range s.ImagePullSecrets {
			if s.ImagePullSecrets[i].Name == "" {
				continue // names nothing
			}
			c.refuseReference(path.Child("imagePullSecrets").Index(i), "secrets")
		}
	}
	if len(s.ResourceClaims) > 0 {
		c.refuseReference(path.Child("resourceClaims"), "resourceclaims")
	}
	if !allow.Env {
		c.environmentReferences(path)
	}
	for i := range s.Volumes {
		v := &s.Volumes[i]
		what := volumeObject(v, allow.Volumes)
		if what == "" {
			continue
		}
		c.refuseReference(path.Child("volumes").Index(i), what)
	}
}

func (c *checker) refuseReference(path *field.Path, what string) {
	c.forbidden(path, "static pods may not reference "+what)
}

func (c *checker) environmentReferences(path *field.Path) {
	refuse := c.refuseReference
	for path, ctr := range c.allContainers(path) {
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
}

func listOf(kind podspec.ContainerKind) string {
	switch kind {
	case podspec.InitContainer:
		return "initContainers"
	case podspec.EphemeralContainer:
		return "ephemeralContainers"
	default:
		return "containers"
	}
}

// volumeObject names the API object that a volume needs. It is empty if the volume
// needs none, or only secrets and config maps where volumes of these are allowed.
func volumeObject(v *v1.Volume, allowed bool) string {
	switch {
	case v.ConfigMap != nil && !allowed:
		return "configmaps (via configmap volumes)"
	case v.Secret != nil && !allowed:
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
			if what := projectedObject(&v.Projected.Sources[i], allowed); what != "" {
				return what
			}
		}
	}
	return ""
}

// hasSecretRef reports whether the credentials of a network volume are in a secret.
func hasSecretRef(v *v1.Volume) bool {
	named := func(r *v1.LocalObjectReference) bool { return r != nil && r.Name != "" }
	return v.CephFS != nil && named(v.CephFS.SecretRef) ||
		v.Cinder != nil && named(v.Cinder.SecretRef) ||
		v.FlexVolume != nil && named(v.FlexVolume.SecretRef) ||
		v.ISCSI != nil && named(v.ISCSI.SecretRef) ||
		v.RBD != nil && named(v.RBD.SecretRef) ||
		v.ScaleIO != nil && named(v.ScaleIO.SecretRef) ||
		v.StorageOS != nil && named(v.StorageOS.SecretRef)
}

// projectedObject is volumeObject for one source of a projected volume.
func projectedObject(s *v1.VolumeProjection, allowed bool) string {
	switch {
	case s.ConfigMap != nil && !allowed:
		return "configmaps (via projected volumes)"
	case s.Secret != nil && !allowed:
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
