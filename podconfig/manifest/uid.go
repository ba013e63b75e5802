package manifest

import (
	"bufio"
	"encoding/hex"
	"hash/fnv"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// newestKubelet is the minor version of kubelet whose API types are those of this module.
	newestKubelet = 37
	// oldestKubelet is the oldest one whose UIDs are known.
	oldestKubelet = 35
)

// minorOf returns the minor version of a version such as "1.36" or "v1.36.3", or the nearest one whose UIDs are known;
// newestKubelet for what is not a version.
func minorOf(version string) int {
	minor, ok := strings.CutPrefix(strings.TrimPrefix(version, "v"), "1.")
	minor, _, _ = strings.Cut(strings.TrimSuffix(minor, "+"), ".")
	n, err := strconv.Atoi(minor)
	if !ok || err != nil {
		return newestKubelet
	}
	return min(max(n, oldestKubelet), newestKubelet)
}

// derivedUID returns the UID that a kubelet derives for the pod, which has the defaults and is not yet normalized
// otherwise: the 128 bit FNV-1a hash of a dump of the pod, the node and the origin.
func derivedUID(pod *v1.Pod, opts Options) types.UID {
	h := fnv.New128a()
	d := &dumper{out: bufio.NewWriter(h), minor: minorOf(opts.KubeletVersion)}
	internal := *pod
	internal.TypeMeta = metav1.TypeMeta{}
	d.value(reflect.ValueOf(&internal), reflect.Value{}, true)
	if opts.Source == SourceFile {
		d.text("host:", opts.NodeName, "file:", opts.Origin)
	} else {
		d.text("url:", opts.Origin)
	}
	_ = d.out.Flush() // a hash returns no error
	return types.UID(hex.EncodeToString(h.Sum(nil)))
}

// dumper writes a pod as kubelet prints it, with the verb %#v of github.com/davecgh/go-spew: each value in a field is
// preceded by its type, and unexported fields are printed, too. Kubelet prints its internal API types. These are the
// same as those of k8s.io/api since 1.37; for the differences of older ones see fields.
//
// The output for a version must never change.
type dumper struct {
	out   *bufio.Writer
	minor int
}

func (d *dumper) text(parts ...string) {
	for _, part := range parts {
		_, _ = io.WriteString(d.out, part)
	}
}

// value writes the value, which is a field of a struct or an element; parent is the innermost struct that it is in.
// If typed is true, the type is written before it.
func (d *dumper) value(v, parent reflect.Value, typed bool) {
	if typed {
		d.text("(", typeName(v.Type()), ")")
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			d.text("<nil>")
			return
		}
		if !typed {
			d.text("<*>")
		}
		d.value(v.Elem(), parent, false)
	case reflect.Struct:
		d.structure(v, parent)
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.IsNil() {
			d.text("<nil>")
			return
		}
		d.text("[")
		for i := range v.Len() {
			if i > 0 {
				d.text(" ")
			}
			d.value(v.Index(i), parent, false)
		}
		d.text("]")
	case reflect.Map:
		if v.IsNil() {
			d.text("<nil>")
			return
		}
		d.text("map[")
		keys := v.MapKeys() // strings
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for i, key := range keys {
			if i > 0 {
				d.text(" ")
			}
			d.text(key.String(), ":")
			d.value(v.MapIndex(key), parent, false)
		}
		d.text("]")
	case reflect.String:
		d.text(v.String())
	case reflect.Bool:
		d.text(strconv.FormatBool(v.Bool()))
	default:
		if v.CanInt() {
			d.text(strconv.FormatInt(v.Int(), 10))
		} else if v.CanUint() {
			d.text(strconv.FormatUint(v.Uint(), 10))
		}
	}
}

// structure writes a struct. A field that it lacks is one of the parent.
func (d *dumper) structure(v, parent reflect.Value) {
	d.text("{")
	for i, name := range d.fields(v.Type()) {
		if i > 0 {
			d.text(" ")
		}
		d.text(name)
		if strings.Contains(name, ":") {
			continue
		}
		d.text(":")
		field := v.FieldByName(name)
		if !field.IsValid() {
			field = parent.FieldByName(name)
		}
		d.value(field, v, true)
	}
	d.text("}")
}

const apiPackage = "k8s.io/api/core/v1"

// typeName returns the name of the internal type.
func typeName(t reflect.Type) string {
	switch {
	case t.PkgPath() == apiPackage:
		return "core." + t.Name()
	case t.Name() != "":
		return t.String()
	case t.Kind() == reflect.Pointer:
		return "*" + typeName(t.Elem())
	case t.Kind() == reflect.Slice:
		return "[]" + typeName(t.Elem())
	case t.Kind() == reflect.Map:
		return "map[" + typeName(t.Key()) + "]" + typeName(t.Elem())
	}
	return t.String()
}

// fields returns the names of the fields of the type in kubelet's order. A name with a colon is a field that the API no
// longer has, with the value nil.
func (d *dumper) fields(t reflect.Type) []string {
	older := t.PkgPath() == apiPackage && d.minor < 37
	if older {
		if order := orderBefore137(t.Name(), d.minor); order != "" {
			return strings.Fields(order)
		}
	}
	names := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		if name := t.Field(i).Name; !older || !newIn137(t.Name()+"."+name) {
			names = append(names, name)
		}
	}
	return names
}

// newIn137 reports whether kubelet has the field since 1.37. Those of API objects that static pods cannot refer to
// are left out.
func newIn137(field string) bool {
	switch field {
	case "DownwardAPIVolumeFile.User", "DownwardAPIVolumeSource.DefaultUser", "EmptyDirVolumeSource.Mode",
		"GRPCAction.Mode", "HTTPGetAction.Protocol", "ProjectedVolumeSource.DefaultUser",
		"VolumeMount.BindMountOptions":
		return true
	}
	return false
}

// orderBefore137 returns the fields of the types whose fields kubelets before 1.37 have in another order than the API,
// or "" for another type.
func orderBefore137(name string, minor int) string {
	switch name {
	case "PodSpec":
		order := "Volumes InitContainers Containers EphemeralContainers RestartPolicy TerminationGracePeriodSeconds " +
			"ActiveDeadlineSeconds DNSPolicy NodeSelector ServiceAccountName AutomountServiceAccountToken NodeName " +
			"SecurityContext ImagePullSecrets Hostname Subdomain SetHostnameAsFQDN Affinity SchedulerName Tolerations " +
			"HostAliases PriorityClassName Priority PreemptionPolicy DNSConfig ReadinessGates RuntimeClassName " +
			"Overhead EnableServiceLinks TopologySpreadConstraints OS SchedulingGates ResourceClaims Resources " +
			"HostnameOverride "
		if minor < 36 {
			return order + "WorkloadRef:(*core.WorkloadReference)<nil>"
		}
		return order + "SchedulingGroup"
	case "PodSecurityContext": // the first five are fields of PodSpec in the API
		return "HostNetwork HostPID HostIPC ShareProcessNamespace HostUsers SELinuxOptions WindowsOptions RunAsUser " +
			"RunAsGroup RunAsNonRoot SupplementalGroups SupplementalGroupsPolicy FSGroup FSGroupChangePolicy Sysctls " +
			"SeccompProfile AppArmorProfile SELinuxChangePolicy"
	case "VolumeSource":
		return "HostPath EmptyDir GCEPersistentDisk AWSElasticBlockStore GitRepo Secret NFS ISCSI Glusterfs " +
			"PersistentVolumeClaim RBD Quobyte FlexVolume Cinder CephFS Flocker DownwardAPI FC AzureFile ConfigMap " +
			"VsphereVolume AzureDisk PhotonPersistentDisk Projected PortworxVolume ScaleIO StorageOS CSI Ephemeral Image"
	case "PodStatus":
		order := "ObservedGeneration Phase Conditions Message Reason NominatedNodeName HostIP HostIPs PodIPs StartTime " +
			"QOSClass InitContainerStatuses ContainerStatuses EphemeralContainerStatuses Resize ResourceClaimStatuses " +
			"ExtendedResourceClaimStatus AllocatedResources Resources"
		if minor < 36 {
			return order
		}
		return order + " NodeAllocatableResourceClaimStatuses"
	}
	return ""
}
