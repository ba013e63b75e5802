package podvalidation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) podVolumes(path *field.Path) {
	c.volumes = map[string]*v1.Volume{}
	for i := range c.spec.Volumes {
		v, path := &c.spec.Volumes[i], path.Index(i)
		before := len(c.errs)
		c.volumeSource(path, &v.VolumeSource)
		c.label(path.Child("name"), v.Name)
		if c.volumes[v.Name] != nil {
			c.duplicate(path.Child("name"), v.Name)
		}
		if len(c.errs) == before {
			c.volumes[v.Name] = v
		}
	}
	c.tokens(path)
}

// tokens checks that a pod with token volumes has a service account.
func (c *checker) tokens(volumes *field.Path) {
	if c.spec.ServiceAccountName != "" {
		return
	}
	for i := range c.spec.Volumes {
		p := c.spec.Volumes[i].Projected
		if p == nil {
			continue
		}
		for j := range p.Sources {
			c.forbiddenIf(p.Sources[j].ServiceAccountToken != nil,
				volumes.Index(i).Child("projected", "sources").Index(j).Child("serviceAccountToken"),
				"must not be specified when serviceAccountName is not set")
		}
	}
}

// volumeSource checks that a volume has one type. It checks the content of the types that
// a node provides by itself or from secrets and config maps.
func (c *checker) volumeSource(path *field.Path, s *v1.VolumeSource) {
	types := setFields(s)
	if len(types) == 0 {
		c.required(path, "must specify a volume type")
		return
	}
	// As in the API server, the first type counts, and emptyDir comes before hostPath.
	if s.EmptyDir != nil && s.HostPath != nil {
		types[0], types[1] = types[1], types[0]
	}
	for _, t := range types[1:] {
		c.forbidden(path.Child(t), "may not specify more than 1 volume type")
	}
	path = path.Child(types[0])
	switch types[0] {
	case "emptyDir":
		c.forbiddenIf(s.EmptyDir.SizeLimit != nil && s.EmptyDir.SizeLimit.Sign() < 0, path.Child("sizeLimit"),
			"SizeLimit field must be a valid resource quantity")
		if m := s.EmptyDir.Mode; m != nil && (*m < 0 || *m > 0o1777) {
			c.invalid(path.Child("mode"), *m, "must be a number between 0 and 01777 (octal), both inclusive")
		}
	case "hostPath":
		c.hostPath(path, s.HostPath)
	case "secret":
		if s.Secret.SecretName == "" {
			c.required(path.Child("secretName"), "")
		}
		c.fileMode(path.Child("defaultMode"), s.Secret.DefaultMode)
		c.user(path.Child("defaultUser"), s.Secret.DefaultUser)
		c.keys(path.Child("items"), s.Secret.Items)
	case "configMap":
		if s.ConfigMap.Name == "" {
			c.required(path.Child("name"), "")
		}
		c.fileMode(path.Child("defaultMode"), s.ConfigMap.DefaultMode)
		c.user(path.Child("defaultUser"), s.ConfigMap.DefaultUser)
		c.keys(path.Child("items"), s.ConfigMap.Items)
	case "downwardAPI":
		c.fileMode(path.Child("defaultMode"), s.DownwardAPI.DefaultMode)
		c.user(path.Child("defaultUser"), s.DownwardAPI.DefaultUser)
		for i := range s.DownwardAPI.Items {
			c.downwardFile(path, &s.DownwardAPI.Items[i])
		}
	case "projected":
		c.projected(path, s.Projected)
	case "persistentVolumeClaim":
		if s.PersistentVolumeClaim.ClaimName == "" {
			c.required(path.Child("claimName"), "")
		}
	case "image":
		if s.Image.Reference == "" {
			c.required(path.Child("reference"), "")
		}
		oneOf(c, path.Child("pullPolicy"), s.Image.PullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	}
}

// keys checks the files of the keys of a secret or config map.
func (c *checker) keys(path *field.Path, items []v1.KeyToPath) {
	for i, item := range items {
		path := path.Index(i)
		if item.Key == "" {
			c.required(path.Child("key"), "")
		}
		c.volumeFile(path.Child("path"), item.Path)
		c.fileMode(path.Child("mode"), item.Mode)
		c.user(path.Child("user"), item.User)
	}
}

// projected checks the sources of a projected volume, and that no two of them have the
// same file. Of the sources that need an API server, it checks only the paths, and service
// account tokens.
func (c *checker) projected(path *field.Path, p *v1.ProjectedVolumeSource) {
	c.fileMode(path.Child("defaultMode"), p.DefaultMode)
	c.user(path.Child("defaultUser"), p.DefaultUser)
	files := unique[string]{}
	add := func(file string) {
		if file != "" {
			files.add(file, func() { c.invalid(path, file, "conflicting duplicate paths") })
		}
	}
	for i := range p.Sources {
		s, source := &p.Sources[i], path.Child("sources").Index(i)
		if len(setFields(s)) > 1 {
			c.forbidden(source, "may not specify more than 1 volume type per source")
		}
		if s.Secret != nil {
			c.projectedObject(source.Child("secret"), s.Secret.Name, s.Secret.Items, add)
		}
		if s.ConfigMap != nil {
			c.projectedObject(source.Child("configMap"), s.ConfigMap.Name, s.ConfigMap.Items, add)
		}
		if s.DownwardAPI != nil {
			for j := range s.DownwardAPI.Items {
				c.downwardFile(source.Child("downwardAPI"), &s.DownwardAPI.Items[j])
				add(s.DownwardAPI.Items[j].Path)
			}
		}
		if t := s.ServiceAccountToken; t != nil {
			c.token(path, source.Child("serviceAccountToken"), t)
		}
		if b := s.ClusterTrustBundle; b != nil {
			c.volumeFile(path.Child("path"), b.Path)
			c.user(source.Child("clusterTrustBundle", "user"), b.User)
			add(b.Path)
		}
		if p := s.PodCertificate; p != nil {
			c.user(source.Child("podCertificate", "user"), p.User)
			for _, f := range [...]struct{ name, path string }{
				{"credentialBundlePath", p.CredentialBundlePath}, {"keyPath", p.KeyPath},
				{"certificateChainPath", p.CertificateChainPath},
			} {
				if f.path != "" {
					c.volumeFile(path.Child(f.name), f.path)
					add(f.path)
				}
			}
		}
	}
}

func (c *checker) projectedObject(path *field.Path, name string, items []v1.KeyToPath, add func(file string)) {
	if name == "" {
		c.required(path.Child("name"), "")
	}
	c.keys(path.Child("items"), items)
	for _, item := range items {
		add(item.Path)
	}
}

// Limits of the lifetime of a token, in seconds (API reference,
// ServiceAccountTokenProjection).
const (
	minTokenSeconds = 10 * 60
	maxTokenSeconds = 1 << 32
)

// token checks a service account token in a volume.
func (c *checker) token(volume, path *field.Path, t *v1.ServiceAccountTokenProjection) {
	if s := t.ExpirationSeconds; s != nil && *s < minTokenSeconds {
		c.invalid(path.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes")
	} else if s != nil && *s > maxTokenSeconds {
		c.invalid(path.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds")
	}
	c.user(path.Child("user"), t.User)
	// This is the field that the API server reports.
	c.volumeFile(volume.Child("path"), t.Path)
}

// emptyProjections refuses empty sources of projected volumes. Kubelet refuses static
// pods that have them, the API server accepts them.
func (c *checker) emptyProjections(volumes *field.Path) {
	for i := range c.spec.Volumes {
		p := c.spec.Volumes[i].Projected
		if p == nil {
			continue
		}
		for j := range p.Sources {
			if len(setFields(&p.Sources[j])) == 0 {
				c.required(volumes.Index(i).Child("projected", "sources").Index(j), "must specify a source")
			}
		}
	}
}

func (c *checker) hostPath(path *field.Path, h *v1.HostPathVolumeSource) {
	if h.Path == "" {
		c.required(path.Child("path"), "")
		return
	}
	c.noBacksteps(path.Child("path"), h.Path)
	if h.Type != nil {
		supported(c, path.Child("type"), *h.Type,
			v1.HostPathUnset, v1.HostPathBlockDev, v1.HostPathCharDev, v1.HostPathDirectory,
			v1.HostPathDirectoryOrCreate,
			v1.HostPathFile, v1.HostPathFileOrCreate, v1.HostPathSocket)
	}
}

// downwardFields are the fields of a pod that a file may hold, beside single labels and
// annotations.
var downwardFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace",
	"metadata.uid"}

// downwardFile checks a file of a downwardAPI volume.
func (c *checker) downwardFile(path *field.Path, f *v1.DownwardAPIVolumeFile) {
	c.volumeFile(path.Child("path"), f.Path)
	switch {
	case f.FieldRef != nil:
		c.fieldRef(path.Child("fieldRef"), f.FieldRef, downwardFields)
		if f.ResourceFieldRef != nil {
			c.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		}
	case f.ResourceFieldRef != nil:
		c.resourceFieldRef(path.Child("resourceFieldRef"), f.ResourceFieldRef, true)
	default:
		c.required(path, "one of fieldRef and resourceFieldRef is required")
	}
	c.fileMode(path.Child("mode"), f.Mode)
	c.user(path.Child("user"), f.User)
}

// volumeFile checks the path of a file in a volume. Names that begin with two dots are
// reserved for the writer of the volume.
func (c *checker) volumeFile(path *field.Path, value string) {
	if value == "" {
		c.required(path, "")
	}
	c.relative(path, value)
	if strings.HasPrefix(value, "..") && !strings.HasPrefix(value, "../") {
		c.invalid(path, value, "must not start with '..'")
	}
}

func (c *checker) fileMode(path *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

// user checks the owner of files.
func (c *checker) user(path *field.Path, user *int64) {
	if user != nil {
		c.invalid(path, *user, validation.IsValidUserID(*user)...)
	}
}

// mounts checks the volume mounts of a container.
func (c *checker) mounts(container *field.Path, ctr *v1.Container) {
	list := container.Child("volumeMounts")
	devices := map[string]bool{} // names and paths
	for _, d := range ctr.VolumeDevices {
		devices[d.Name], devices[d.DevicePath] = true, true
	}
	taken := unique[string]{}
	for i := range ctr.VolumeMounts {
		m, path := &ctr.VolumeMounts[i], list.Index(i)
		if m.Name == "" {
			c.required(path.Child("name"), "")
		}
		if c.volumes[m.Name] == nil {
			c.add(field.NotFound(path.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			c.required(path.Child("mountPath"), "")
		}
		taken.add(m.MountPath, func() { c.invalid(path.Child("mountPath"), m.MountPath, "must be unique") })
		if devices[m.Name] {
			c.invalid(path.Child("name"), m.Name, "must not already exist in volumeDevices")
		}
		if devices[m.MountPath] {
			c.invalid(path.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices")
		}
		// The API server reports these for the list, not for the mount.
		c.relative(list.Child("subPath"), m.SubPath)
		c.relative(list.Child("subPathExpr"), m.SubPathExpr)
		if m.SubPath != "" && m.SubPathExpr != "" {
			c.invalid(path.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
		}
		c.mountMode(list, m, ctr)
		c.mountOptions(path.Child("bindMountOptions"), m)
	}
	c.devices(container.Child("volumeDevices"), ctr)
}

// devices checks the block devices of a container.
func (c *checker) devices(list *field.Path, ctr *v1.Container) {
	mounts := map[string]bool{} // names and paths
	for i := range ctr.VolumeMounts {
		mounts[ctr.VolumeMounts[i].Name], mounts[ctr.VolumeMounts[i].MountPath] = true, true
	}
	names, paths := unique[string]{}, unique[string]{}
	for i, d := range ctr.VolumeDevices {
		name, path := list.Index(i).Child("name"), list.Index(i).Child("devicePath")
		if d.Name == "" {
			c.required(name, "")
		} else {
			names.add(d.Name, func() { c.invalid(name, d.Name, "must be unique") })
		}
		if v := c.volumes[d.Name]; v == nil {
			c.add(field.NotFound(name, d.Name))
		} else if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			c.invalid(name, d.Name,
				"can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		if d.DevicePath == "" {
			c.required(path, "")
		}
		paths.add(d.DevicePath, func() { c.invalid(path, d.DevicePath, "must be unique") })
		c.noBacksteps(path, d.DevicePath)
		if mounts[d.Name] {
			c.invalid(name, d.Name, "must not already exist in volumeMounts")
		}
		if mounts[d.DevicePath] {
			c.invalid(path, d.DevicePath, "must not already exist as a path in volumeMounts")
		}
	}
}

// mountMode checks propagation and recursive read-only mounts.
func (c *checker) mountMode(list *field.Path, m *v1.VolumeMount, ctr *v1.Container) {
	propagation := v1.MountPropagationNone
	if m.MountPropagation != nil {
		propagation = *m.MountPropagation
		supported(c, list.Child("mountPropagation"), propagation, v1.MountPropagationBidirectional,
			v1.MountPropagationHostToContainer, v1.MountPropagationNone)
	}
	if propagation == v1.MountPropagationBidirectional &&
		!isTrue(ctr.SecurityContext, func(s *v1.SecurityContext) *bool { return s.Privileged }) {
		c.forbidden(list.Child("mountPropagation"), "Bidirectional mount propagation is available only to "+
			"privileged containers")
	}
	if m.RecursiveReadOnly == nil {
		return
	}
	path := list.Child("recursiveReadOnly")
	switch *m.RecursiveReadOnly {
	case v1.RecursiveReadOnlyDisabled:
	case v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible:
		c.forbiddenIf(!m.ReadOnly, path, "may only be specified when readOnly is true")
		c.forbiddenIf(propagation != v1.MountPropagationNone, path,
			"may only be specified when mountPropagation is None or not specified")
	default:
		c.add(field.NotSupported(path, *m.RecursiveReadOnly, []v1.RecursiveReadOnlyMode{v1.RecursiveReadOnlyDisabled,
			v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible}))
	}
}

// mountOptions checks the options of a bind mount.
func (c *checker) mountOptions(path *field.Path, m *v1.VolumeMount) {
	taken := unique[string]{}
	for i, option := range m.BindMountOptions {
		supported(c, path.Index(i), v1.BindMountOption(option), v1.BindMountOptionNoDev, v1.BindMountOptionNoExec,
			v1.BindMountOptionNoSUID)
		taken.add(option, func() { c.add(field.Duplicate(path.Index(i), option)) })
	}
	if v := c.volumes[m.Name]; v != nil && v.Image != nil && len(m.BindMountOptions) > 0 {
		c.invalid(path, m.BindMountOptions, "bindMountOptions may not be used with image volumes")
	}
}

// isTrue reads an optional flag of a struct that may be missing.
func isTrue[T any](s *T, flag func(*T) *bool) bool {
	if s == nil {
		return false
	}
	b := flag(s)
	return b != nil && *b
}

// relative checks a path that must stay inside a directory.
func (c *checker) relative(path *field.Path, value string) {
	if strings.HasPrefix(value, "/") {
		c.invalid(path, value, "must be a relative path")
	}
	c.noBacksteps(path, value)
}

func (c *checker) noBacksteps(path *field.Path, value string) {
	if slices.Contains(strings.Split(value, "/"), "..") {
		c.invalid(path, value, "must not contain '..'")
	}
}
