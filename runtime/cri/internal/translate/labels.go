package translate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Labels by which everyone recognises the sandboxes and containers of pods.
const (
	LabelPodName       = kubelettypes.KubernetesPodNameLabel
	LabelPodNamespace  = kubelettypes.KubernetesPodNamespaceLabel
	LabelPodUID        = kubelettypes.KubernetesPodUIDLabel
	LabelContainerName = kubelettypes.KubernetesContainerNameLabel
)

// Annotations of containers, as kubelet names and writes them.
const (
	annotationHash                     = "io.kubernetes.container.hash"
	annotationRestartCount             = "io.kubernetes.container.restartCount"
	annotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	annotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStop                  = "io.kubernetes.container.preStopHandler"
	annotationPorts                    = "io.kubernetes.container.ports"
	annotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"
	annotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
)

// sandboxLabels are the pod's own and the three that identify it.
func sandboxLabels(pod *v1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	maps.Copy(labels, pod.Labels)
	labels[LabelPodName] = pod.Name
	labels[LabelPodNamespace] = pod.Namespace
	labels[LabelPodUID] = string(pod.UID)
	return labels
}

// containerLabels identify the container; those of the pod are not repeated.
func containerLabels(pod *v1.Pod, c *v1.Container) map[string]string {
	return map[string]string{
		LabelPodName:       pod.Name,
		LabelPodNamespace:  pod.Namespace,
		LabelPodUID:        string(pod.UID),
		LabelContainerName: c.Name,
	}
}

// containerAnnotations are what is needed of the container when its spec is
// gone, see [Record].
func containerAnnotations(pod *v1.Pod, c *v1.Container, restartCount int32, extra map[string]string) (map[string]string, error) {
	a := make(map[string]string, len(extra)+8)
	maps.Copy(a, extra)
	a[annotationHash] = strconv.FormatUint(runtime.ContainerHash(c), 16)
	a[annotationRestartCount] = strconv.FormatInt(int64(restartCount), 10)
	a[annotationTerminationMessagePath] = c.TerminationMessagePath
	a[annotationTerminationMessagePolicy] = string(c.TerminationMessagePolicy)
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		a[annotationDeletionGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[annotationTerminationGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("encoding the preStop hook: %w", err)
		}
		a[annotationPreStop] = string(raw)
	}
	if len(c.Ports) > 0 {
		raw, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("encoding the ports: %w", err)
		}
		a[annotationPorts] = string(raw)
	}
	return a, nil
}

// RefFromLabels returns which pod a sandbox or container belongs to. Without a
// name, a namespace and a UID in the labels it is false: nobody who keeps to the
// conventions of kubelet has made it.
func RefFromLabels(labels map[string]string) (runtime.PodRef, bool) {
	ref := runtime.PodRef{
		UID:       types.UID(labels[LabelPodUID]),
		Namespace: labels[LabelPodNamespace],
		Name:      labels[LabelPodName],
	}
	return ref, ref.UID != "" && ref.Namespace != "" && ref.Name != ""
}

// Record is what a container's annotations tell of it.
type Record struct {
	// Hash of the spec that the container was made from, see
	// [runtime.ContainerHash]; 0 if there is none.
	Hash         uint64
	RestartCount int32
	// DeletionGracePeriod and TerminationGracePeriod are the pod's at the time the
	// container was made, in seconds; nil if it had none.
	DeletionGracePeriod      *int64
	TerminationGracePeriod   *int64
	TerminationMessagePath   string
	TerminationMessagePolicy v1.TerminationMessagePolicy
	PreStop                  *v1.LifecycleHandler
	Ports                    []v1.ContainerPort
}

// GracePeriod is the grace period that the pod was to be stopped with: that of its
// deletion, else that of its spec, else nil.
func (r *Record) GracePeriod() *int64 {
	if r.DeletionGracePeriod != nil {
		return r.DeletionGracePeriod
	}
	return r.TerminationGracePeriod
}

// ReadRecord reads a container's annotations. What is missing stays zero. With an
// error, which names every annotation that cannot be read, all the others have
// been read.
func ReadRecord(annotations map[string]string) (Record, error) {
	r := Record{
		TerminationMessagePath:   annotations[annotationTerminationMessagePath],
		TerminationMessagePolicy: v1.TerminationMessagePolicy(annotations[annotationTerminationMessagePolicy]),
	}
	var errs []error
	read := func(key string, parse func(value string) error) {
		if value, ok := annotations[key]; ok {
			if err := parse(value); err != nil {
				errs = append(errs, fmt.Errorf("annotation %s: %w", key, err))
			}
		}
	}
	read(annotationHash, func(string) (err error) {
		r.Hash, err = ReadHash(annotations)
		return err
	})
	read(annotationRestartCount, func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if err == nil {
			r.RestartCount = int32(n)
		}
		return err
	})
	read(annotationDeletionGracePeriod, seconds(&r.DeletionGracePeriod))
	read(annotationTerminationGracePeriod, seconds(&r.TerminationGracePeriod))
	read(annotationPreStop, func(s string) error {
		var h v1.LifecycleHandler
		if err := json.Unmarshal([]byte(s), &h); err != nil {
			return err
		}
		r.PreStop = &h
		return nil
	})
	read(annotationPorts, func(s string) error {
		var ports []v1.ContainerPort
		if err := json.Unmarshal([]byte(s), &ports); err != nil {
			return err
		}
		r.Ports = ports
		return nil
	})
	return r, errors.Join(errs...)
}

// ReadHash reads no more than [Record.Hash], and allocates nothing unless it fails.
func ReadHash(annotations map[string]string) (uint64, error) {
	s, ok := annotations[annotationHash]
	if !ok {
		return 0, nil
	}
	return strconv.ParseUint(s, 16, 64)
}

// seconds returns a parser that stores a number of seconds.
func seconds(to **int64) func(string) error {
	return func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err == nil {
			*to = &n
		}
		return err
	}
}
