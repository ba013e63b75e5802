package podconfig

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (c *checker) podVolumes(path *field.Path) {
	c.volumes = map[string]*v1.Volume{}
	names := unique[string]{}
	for i := range c.spec.Volumes {
		v, path := &c.spec.Volumes[i], path.Index(i)
		c.label(path.Child("name"), v.Name)
		if v.Name != "" {
			names.add(v.Name, func() { c.duplicate(path.Child("name"), v.Name) })
			c.volumes[v.Name] = v
		}
		c.volumeSource(path, &v.VolumeSource)
	}
}

// volumeSource checks that a volume is of one type, and the types that a node
// provides by itself.
func (c *checker) volumeSource(path *field.Path, s *v1.VolumeSource) {
	types := setFields(s)
	switch len(types) {
	case 0:
		c.required(path, "must specify a volume type")
	case 1:
	default:
		for _, t := range types[1:] {
			c.forbidden(path.Child(t), "may not specify more than 1 volume type")
		}
	}
	if s.EmptyDir != nil && s.EmptyDir.SizeLimit != nil && s.EmptyDir.SizeLimit.Sign() < 0 {
		c.forbidden(path.Child("emptyDir", "sizeLimit"), "SizeLimit field must be a valid resource quantity")
	}
	if h := s.HostPath; h != nil {
		c.hostPath(path.Child("hostPath"), h)
	}
	if d := s.DownwardAPI; d != nil {
		path := path.Child("downwardAPI")
		c.fileMode(path.Child("defaultMode"), d.DefaultMode)
		c.downwardFiles(path, d.Items, nil)
	}
	if p := s.Projected; p != nil {
		c.projected(path.Child("projected"), p)
	}
	if s.Image != nil {
		if s.Image.Reference == "" {
			c.required(path.Child("image", "reference"), "")
		}
		oneOf(c, path.Child("image", "pullPolicy"), s.Image.PullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	}
}

func (c *checker) projected(path *field.Path, p *v1.ProjectedVolumeSource) {
	c.fileMode(path.Child("defaultMode"), p.DefaultMode)
	files := unique[string]{}
	for i := range p.Sources {
		path := path.Child("sources").Index(i)
		switch len(setFields(&p.Sources[i])) {
		case 0:
			c.required(path, "must specify a source")
		case 1:
		default:
			c.forbidden(path, "may not specify more than 1 source")
		}
		if d := p.Sources[i].DownwardAPI; d != nil {
			c.downwardFiles(path.Child("downwardAPI"), d.Items, files)
		}
	}
}

// setFields returns the JSON names of those fields of a struct of pointers that
// are not nil.
func setFields[T v1.VolumeSource | v1.VolumeProjection](s *T) []string {
	var names []string
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

func (c *checker) hostPath(path *field.Path, h *v1.HostPathVolumeSource) {
	if h.Path == "" {
		c.required(path.Child("path"), "")
		return
	}
	c.noBacksteps(path.Child("path"), h.Path)
	types := []v1.HostPathType{
		v1.HostPathUnset, v1.HostPathBlockDev, v1.HostPathCharDev, v1.HostPathDirectory, v1.HostPathDirectoryOrCreate,
		v1.HostPathFile, v1.HostPathFileOrCreate, v1.HostPathSocket,
	}
	if h.Type != nil && !slices.Contains(types, *h.Type) {
		c.add(field.NotSupported(path.Child("type"), *h.Type, types))
	}
}

// downwardFields are the fields of a pod that a file may hold, next to single
// labels and annotations.
var downwardFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}

// downwardFiles checks the files of a volume, or of a part of it; taken are the
// paths that other parts have, nil if they may be doubled, as the API server lets
// them be in a plain volume.
func (c *checker) downwardFiles(path *field.Path, files []v1.DownwardAPIVolumeFile, taken unique[string]) {
	for i := range files {
		f := &files[i]
		if f.Path == "" {
			c.required(path.Child("path"), "")
		}
		c.relative(path.Child("path"), f.Path)
		if strings.HasPrefix(f.Path, "..") && !strings.HasPrefix(f.Path, "../") && f.Path != ".." {
			c.invalid(path.Child("path"), f.Path, "must not start with '..'")
		}
		switch {
		case f.FieldRef != nil && f.ResourceFieldRef != nil:
			c.invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
		case f.FieldRef != nil:
			c.fieldRef(path.Child("fieldRef"), f.FieldRef, downwardFields)
		case f.ResourceFieldRef != nil:
			c.resourceFieldRef(path.Child("resourceFieldRef"), f.ResourceFieldRef, true)
		default:
			c.required(path, "one of fieldRef and resourceFieldRef is required")
		}
		c.fileMode(path.Child("mode"), f.Mode)
		if taken != nil {
			taken.add(f.Path, func() { c.invalid(path.Child("path"), f.Path, "conflicting duplicate paths") })
		}
	}
}

func (c *checker) fileMode(path *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		c.invalid(path, *mode, "must be a number between 0 and 0777 (octal), both inclusive")
	}
}

// mounts checks where volumes appear in a container.
func (c *checker) mounts(path *field.Path, ctr *v1.Container) {
	devices := map[string]bool{} // names and paths
	for i, d := range ctr.VolumeDevices {
		path := path.Child("volumeDevices").Index(i)
		c.device(path, d)
		devices[d.Name], devices[d.DevicePath] = true, true
	}
	taken := unique[string]{}
	for i := range ctr.VolumeMounts {
		m, path := &ctr.VolumeMounts[i], path.Child("volumeMounts").Index(i)
		if m.Name == "" {
			c.required(path.Child("name"), "")
		} else if c.volumes[m.Name] == nil {
			c.add(field.NotFound(path.Child("name"), m.Name))
		} else if devices[m.Name] {
			c.invalid(path.Child("name"), m.Name, "must not already exist in volumeDevices")
		}
		if m.MountPath == "" {
			c.required(path.Child("mountPath"), "")
		} else if devices[m.MountPath] {
			c.invalid(path.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices")
		}
		taken.add(m.MountPath, func() { c.invalid(path.Child("mountPath"), m.MountPath, "must be unique") })
		c.relative(path.Child("subPath"), m.SubPath)
		c.relative(path.Child("subPathExpr"), m.SubPathExpr)
		if m.SubPath != "" && m.SubPathExpr != "" {
			c.invalid(path.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
		}
		c.mountMode(path, m, ctr)
	}
}

func (c *checker) device(path *field.Path, d v1.VolumeDevice) {
	switch v := c.volumes[d.Name]; {
	case d.Name == "":
		c.required(path.Child("name"), "")
	case v == nil:
		c.add(field.NotFound(path.Child("name"), d.Name))
	case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
		c.invalid(path.Child("name"), d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
	}
	if d.DevicePath == "" {
		c.required(path.Child("devicePath"), "")
	}
	c.noBacksteps(path.Child("devicePath"), d.DevicePath)
}

// mountMode checks propagation and recursive read-only mounts.
func (c *checker) mountMode(path *field.Path, m *v1.VolumeMount, ctr *v1.Container) {
	propagation := v1.MountPropagationNone
	if m.MountPropagation != nil {
		propagation = *m.MountPropagation
		oneOf(c, path.Child("mountPropagation"), propagation, v1.MountPropagationBidirectional, v1.MountPropagationHostToContainer, v1.MountPropagationNone)
	}
	if propagation == v1.MountPropagationBidirectional && !isTrue(ctr.SecurityContext, func(s *v1.SecurityContext) *bool { return s.Privileged }) {
		c.forbidden(path.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers")
	}
	if m.RecursiveReadOnly == nil {
		return
	}
	path = path.Child("recursiveReadOnly")
	oneOf(c, path, *m.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyEnabled, v1.RecursiveReadOnlyIfPossible)
	if *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return
	}
	if !m.ReadOnly {
		c.forbidden(path, "may only be specified when readOnly is true")
	}
	if propagation != v1.MountPropagationNone {
		c.forbidden(path, "may only be specified when mountPropagation is None or not specified")
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
