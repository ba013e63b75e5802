package crimeta

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// AnnotationImageVolumes has the images that are mounted into a container, as the runtime names
// them, separated by commas. The runtime lists containers with their annotations and without
// their mounts, and an image that is mounted must not be removed.
const AnnotationImageVolumes = "kubeletkit.io/container.image-volumes"

// AnnotationBackoff has [runtime.ContainerStatus].Backoff, in the form of
// [time.Duration.String]. kubelet has no such annotation, and ignores it.
const AnnotationBackoff = "kubeletkit.io/container.backoff"

// AnnotationResizeHash has [runtime.ContainerStatus].ResizeHash, if it is not 0.
const AnnotationResizeHash = "kubeletkit.io/container.resize-hash"

// Annotations of containers, as kubelet has them.
const (
	AnnotationHash                     = "io.kubernetes.container.hash"
	AnnotationRestartCount             = "io.kubernetes.container.restartCount"
	AnnotationTerminationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationTerminationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationPreStop                  = "io.kubernetes.container.preStopHandler"
	AnnotationPorts                    = "io.kubernetes.container.ports"
	AnnotationDeletionGracePeriod      = "io.kubernetes.pod.deletionGracePeriod"
	AnnotationTerminationGracePeriod   = "io.kubernetes.pod.terminationGracePeriod"
)

// ContainerAnnotations returns the annotations of a container: extra, and the
// record of its spec that [ReadRecord] reads.
func ContainerAnnotations(pod *v1.Pod, c *v1.Container, restartCount int32,
	extra map[string]string) (map[string]string, error) {
	a := make(map[string]string, len(extra)+8)
	maps.Copy(a, extra)
	a[AnnotationHash] = strconv.FormatUint(podspec.ContainerHash(c), 16)
	if hash := podspec.ResizeHash(pod, c); hash != 0 {
		a[AnnotationResizeHash] = strconv.FormatUint(hash, 16)
	}
	a[AnnotationRestartCount] = strconv.FormatInt(int64(restartCount), 10)
	a[AnnotationTerminationMessagePath] = c.TerminationMessagePath
	a[AnnotationTerminationMessagePolicy] = string(c.TerminationMessagePolicy)
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		a[AnnotationDeletionGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[AnnotationTerminationGracePeriod] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("encoding the preStop hook: %w", err)
		}
		a[AnnotationPreStop] = string(raw)
	}
	if len(c.Ports) > 0 {
		raw, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("encoding the ports: %w", err)
		}
		a[AnnotationPorts] = string(raw)
	}
	return a, nil
}

// Record is what the annotations of a container record of its spec and its pod.
type Record struct {
	// Hash of the spec that the container was made from, see
	// [podspec.ContainerHash]; 0 if there is none.
	Hash         uint64
	RestartCount int32
	// DeletionGracePeriod and TerminationGracePeriod are those of the pod when the
	// container was created, in seconds; nil if it had none.
	DeletionGracePeriod      *int64
	TerminationGracePeriod   *int64
	TerminationMessagePath   string
	TerminationMessagePolicy v1.TerminationMessagePolicy
	PreStop                  *v1.LifecycleHandler
	Ports                    []v1.ContainerPort
	// Backoff is not negative.
	Backoff time.Duration
	// ResizeHash is [runtime.ContainerStatus].ResizeHash.
	ResizeHash uint64
}

// GracePeriod returns the grace period of the pod in seconds: that of its deletion,
// else that of its spec, else nil.
func (r *Record) GracePeriod() *int64 {
	if r.DeletionGracePeriod != nil {
		return r.DeletionGracePeriod
	}
	return r.TerminationGracePeriod
}

// ReadRecord reads the annotations of a container. Missing ones leave their fields
// zero. The error names every annotation that cannot be read; the record then has
// all the others.
func ReadRecord(annotations map[string]string) (Record, error) {
	r := Record{
		TerminationMessagePath:   annotations[AnnotationTerminationMessagePath],
		TerminationMessagePolicy: v1.TerminationMessagePolicy(annotations[AnnotationTerminationMessagePolicy]),
	}
	var errs []error
	read := func(key string, parse func(value string) error) {
		if value, ok := annotations[key]; ok {
			if err := parse(value); err != nil {
				errs = append(errs, fmt.Errorf("annotation %s: %w", key, err))
			}
		}
	}
	read(AnnotationHash, func(string) (err error) {
		r.Hash, err = ReadHash(annotations)
		return err
	})
	read(AnnotationRestartCount, func(s string) error {
		n, err := strconv.ParseInt(s, 10, 32)
		if err == nil {
			r.RestartCount = int32(max(n, 0))
		}
		return err
	})
	read(AnnotationBackoff, func(s string) error {
		d, err := time.ParseDuration(s)
		r.Backoff = max(d, 0)
		return err
	})
	read(AnnotationResizeHash, func(s string) (err error) {
		r.ResizeHash, err = strconv.ParseUint(s, 16, 64)
		return err
	})
	read(AnnotationDeletionGracePeriod, seconds(&r.DeletionGracePeriod))
	read(AnnotationTerminationGracePeriod, seconds(&r.TerminationGracePeriod))
	read(AnnotationPreStop, func(s string) error {
		var h v1.LifecycleHandler
		if err := json.Unmarshal([]byte(s), &h); err != nil {
			return err
		}
		r.PreStop = &h
		return nil
	})
	read(AnnotationPorts, func(s string) error {
		var ports []v1.ContainerPort
		if err := json.Unmarshal([]byte(s), &ports); err != nil {
			return err
		}
		r.Ports = ports
		return nil
	})
	return r, errors.Join(errs...)
}

// ReadHash reads [Record].Hash alone. It allocates nothing unless it fails.
func ReadHash(annotations map[string]string) (uint64, error) {
	s, ok := annotations[AnnotationHash]
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
