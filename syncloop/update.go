package syncloop

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// The fields of a spec that act on a running pod, by their names in Go. All others act
// only when a container or sandbox is created. docs/operate/differences/pods.md has the table.
var (
	// appliedToContainer are fields of a container. A new image replaces the container, a
	// new probe the probe; the others are read when they are needed.
	appliedToContainer = []string{"Name", "Image", "ImagePullPolicy", "StartupProbe", "LivenessProbe", "ReadinessProbe",
		"Lifecycle", "RestartPolicy", "RestartPolicyRules", "TerminationMessagePath", "TerminationMessagePolicy"}
	// appliedToPod are fields of a pod. They are read when they are needed, matter only to
	// a scheduler, or are compared container by container.
	appliedToPod = []string{"InitContainers", "Containers", "EphemeralContainers", "RestartPolicy",
		"TerminationGracePeriodSeconds",
		"ActiveDeadlineSeconds", "ReadinessGates", "ImagePullSecrets", "NodeName", "NodeSelector",
		"Affinity", "SchedulerName",
		"Tolerations", "TopologySpreadConstraints", "SchedulingGates", "Priority", "PriorityClassName",
		"PreemptionPolicy", "Overhead"}
)

// notApplied returns the paths of the fields that differ between two specs of a pod and do
// not act on its running containers and sandbox, as in "spec.containers{main}.env". It
// returns none if the pod gets a new sandbox, because then all containers are created
// again.
func notApplied(old, updated *v1.Pod) []string {
	if namespacesOf(old) != namespacesOf(updated) {
		return nil
	}
	appliedToPod := appliedToPod
	if podspec.Resizable(updated) {
		appliedToPod = append(slices.Clone(appliedToPod), "Resources")
	}
	paths := differences("spec", &old.Spec, &updated.Spec, appliedToPod)
	before := map[string]*v1.Container{}
	for kind, c := range podspec.Containers(&old.Spec) {
		if lasting(kind, c) {
			before[c.Name] = c
		}
	}
	for kind, c := range podspec.Containers(&updated.Spec) {
		was := before[c.Name]
		if !lasting(kind, c) || was == nil || was.Image != c.Image {
			continue
		}
		list := "spec.containers{"
		if kind == podspec.InitContainer {
			list = "spec.initContainers{"
		}
		applied := appliedToContainer
		if podspec.Resizable(updated) {
			applied = append(slices.Clone(applied), "Resources", "ResizePolicy")
		}
		paths = append(paths, differences(list+c.Name+"}", was, c, applied)...)
	}
	return paths
}

// lasting reports whether the container runs as long as its pod: a main container or a
// sidecar.
func lasting(kind podspec.ContainerKind, c *v1.Container) bool {
	return kind == podspec.MainContainer || kind == podspec.InitContainer && podspec.IsSidecar(c)
}

// namespaces are the settings whose change requires a new sandbox; see runtime/plan.
type namespaces struct{ network, pid, ipc, shared bool }

func namespacesOf(pod *v1.Pod) namespaces {
	shared := pod.Spec.ShareProcessNamespace
	return namespaces{pod.Spec.HostNetwork, pod.Spec.HostPID, pod.Spec.HostIPC, shared != nil && *shared}
}

// differences returns the paths of the fields in which two structs differ, with the names
// of the API. It leaves out the fields to skip.
func differences[T any](path string, a, b *T, skip []string) []string {
	var paths []string
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range x.NumField() {
		field := x.Type().Field(i)
		if slices.Contains(skip, field.Name) || equality.Semantic.DeepEqual(x.Field(i).Interface(),
			y.Field(i).Interface()) {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		paths = append(paths, path+"."+name)
	}
	return paths
}
