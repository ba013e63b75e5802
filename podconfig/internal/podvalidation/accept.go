package podvalidation

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Accept returns a copy of the pod with its defaults, or what keeps it from running. The spec of the copy is its own;
// the rest is shared with the pod, which is not changed. A pod without a node gets the name of the node, if that is not
// empty.
//
// The pods of an API server are validated already, and a newer one may know more values than this package. So only that
// is checked which a node relies on: names and paths that stay where they belong, and names that are unique. Other pods
// are validated as the API server does it, with every reference; they must have valid text, and be small enough to be
// kept.
func Accept(pod *v1.Pod, nodeName string, fromAPI bool) (*v1.Pod, field.ErrorList) {
	accepted := *pod
	pod.Spec.DeepCopyInto(&accepted.Spec)
	if fromAPI {
		setDefaults(&accepted)
		SetResourceDefaults(&accepted)
		if errs := checkSafety(&accepted); len(errs) > 0 {
			return nil, errs
		}
		return &accepted, nil
	}
	defaultTo(&accepted.Spec.NodeName, nodeName)
	SetDefaults(&accepted)
	errs := Validate(&accepted, nil, Options{Allow: AllowedRefs{All: true}, Updated: true, anyNode: true})
	if path := invalidText(&accepted); path != "" {
		errs = append(errs, field.Invalid(field.NewPath(path), field.OmitValueType{}, "must be valid UTF-8"))
	}
	if len(errs) == 0 && tooLarge(&accepted) {
		errs = append(errs, field.Invalid(nil, field.OmitValueType{},
			fmt.Sprintf("must not have more than %d MiB as JSON", maxSize>>20)))
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return &accepted, nil
}

// InSeconds returns the pod, or a copy of it whose creation and deletion have whole seconds, as in the API. The copy
// shares everything else.
func InSeconds(pod *v1.Pod) *v1.Pod {
	deleted := pod.DeletionTimestamp
	if pod.CreationTimestamp.Nanosecond() == 0 && (deleted == nil || deleted.Nanosecond() == 0) {
		return pod
	}
	copied := *pod
	copied.CreationTimestamp.Time = pod.CreationTimestamp.Truncate(time.Second)
	if deleted != nil {
		copied.DeletionTimestamp = &metav1.Time{Time: deleted.Truncate(time.Second)}
	}
	return &copied
}

// maxSize is the maximum size of a pod as JSON, in bytes. It is less than the size of the largest record of a
// checkpoint, and more than that of the largest manifest.
const maxSize = 15 << 20

// tooLarge reports whether the pod has more than maxSize bytes.
func tooLarge(pod *v1.Pod) bool {
	const small = 512 << 10 // JSON takes at most some twenty times the size in the binary encoding
	if pod.Size() <= small {
		return false
	}
	data, err := json.Marshal(pod)
	return err != nil || len(data) > maxSize
}

// checkSafety checks the names and paths of a pod, which become names of directories and files.
func checkSafety(pod *v1.Pod) field.ErrorList {
	c := &checker{pod: pod, spec: &pod.Spec}
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	c.fileName(meta.Child("name"), pod.Name)
	c.fileName(meta.Child("namespace"), pod.Namespace)
	c.fileName(meta.Child("uid"), string(pod.UID))

	names := unique[string]{}
	for path, ctr := range c.allContainers(spec) {
		c.fileName(path.Child("name"), ctr.Name)
		names.add(ctr.Name, func() { c.duplicate(path.Child("name"), ctr.Name) })
		for i := range ctr.VolumeMounts {
			path := path.Child("volumeMounts").Index(i)
			c.relative(path.Child("subPath"), ctr.VolumeMounts[i].SubPath)
			c.relative(path.Child("subPathExpr"), ctr.VolumeMounts[i].SubPathExpr)
		}
		for i := range ctr.Env {
			if from := ctr.Env[i].ValueFrom; from != nil && from.FileKeyRef != nil {
				c.noBacksteps(path.Child("env").Index(i).Child("valueFrom", "fileKeyRef", "path"), from.FileKeyRef.Path)
			}
		}
		if s := ctr.SecurityContext; s != nil {
			c.localProfile(path.Child("securityContext", "seccompProfile", "localhostProfile"), s.SeccompProfile)
		}
	}
	if s := pod.Spec.SecurityContext; s != nil {
		c.localProfile(spec.Child("securityContext", "seccompProfile", "localhostProfile"), s.SeccompProfile)
	}
	volumes := unique[string]{}
	for i := range pod.Spec.Volumes {
		v, path := &pod.Spec.Volumes[i], spec.Child("volumes").Index(i)
		c.fileName(path.Child("name"), v.Name)
		volumes.add(v.Name, func() { c.duplicate(path.Child("name"), v.Name) })
		for _, file := range volumeFiles(v) {
			c.relative(path, file)
		}
	}
	return c.errs
}

// fileName checks a value that becomes the name of a directory or file.
func (c *checker) fileName(path *field.Path, value string) {
	if !podspec.IsFileName(types.UID(value)) || !utf8.ValidString(value) {
		c.add(field.Invalid(path, value, "must be the name of a file"))
	}
}

func (c *checker) localProfile(path *field.Path, p *v1.SeccompProfile) {
	if p != nil && p.LocalhostProfile != nil {
		c.relative(path, *p.LocalhostProfile)
	}
}

// volumeFiles returns the paths of the files in a volume that the spec names.
func volumeFiles(v *v1.Volume) (files []string) {
	keys := func(items []v1.KeyToPath) {
		for i := range items {
			files = append(files, items[i].Path)
		}
	}
	downward := func(items []v1.DownwardAPIVolumeFile) {
		for i := range items {
			files = append(files, items[i].Path)
		}
	}
	if v.Secret != nil {
		keys(v.Secret.Items)
	}
	if v.ConfigMap != nil {
		keys(v.ConfigMap.Items)
	}
	if v.DownwardAPI != nil {
		downward(v.DownwardAPI.Items)
	}
	if v.Projected == nil {
		return files
	}
	for i := range v.Projected.Sources {
		s := &v.Projected.Sources[i]
		if s.Secret != nil {
			keys(s.Secret.Items)
		}
		if s.ConfigMap != nil {
			keys(s.ConfigMap.Items)
		}
		if s.DownwardAPI != nil {
			downward(s.DownwardAPI.Items)
		}
		if s.ServiceAccountToken != nil {
			files = append(files, s.ServiceAccountToken.Path)
		}
		if s.ClusterTrustBundle != nil {
			files = append(files, s.ClusterTrustBundle.Path)
		}
		if p := s.PodCertificate; p != nil {
			files = append(files, p.CredentialBundlePath, p.KeyPath, p.CertificateChainPath)
		}
	}
	return files
}
