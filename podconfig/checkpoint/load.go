package checkpoint

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/text"
	"github.com/kubeletkit/kubeletkit/podconfig/internal/podvalidation"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Load reads the records and returns the pods, sorted by UID, with the annotations that
// they were kept with. These pods are kept from then on. Call Load before Keep. A record
// that cannot be used is set aside and logged. If the directory cannot be read, that is
// logged and there are no pods.
func (s *Dir) Load(ctx context.Context) []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	problem := func(path string, aside bool, err error) {
		switch {
		case errors.Is(err, errPlain):
			s.log.Error(err, "Checkpoint cannot be trusted; it was removed, since a secret in it can be read",
				"path", path)
		case aside:
			s.log.Error(err, "Checkpoint cannot be used; it was set aside", "path", path, "aside", s.pods.aside)
		default:
			s.log.Error(err, "Checkpoint cannot be used now; it stays where it is", "path", path)
		}
	}
	type dated struct {
		pod     *v1.Pod
		written time.Time
	}
	var found []dated
	err := s.pods.read(ctx, func(name string, record []byte, written time.Time) error {
		pod, err := s.podOf(name, record)
		if err == nil {
			found = append(found, dated{pod, written})
		}
		return err
	}, problem)
	slices.SortStableFunc(found, func(a, b dated) int { return a.written.Compare(b.written) })
	newest := map[string]types.UID{} // by full name
	for _, f := range found {
		full := runtime.RefOf(f.pod).FullName()
		if older, ok := newest[full]; ok && older != f.pod.UID { // the agent ended before it was removed
			s.forget(older)
		}
		newest[full] = f.pod.UID
		s.keep(f.pod)
	}
	if err != nil {
		s.log.Error(err, "Checkpoints of pods cannot be read; pods come back when their sources deliver them",
			"path", s.pods.path)
	}
	err = s.endings.read(ctx, func(name string, record []byte, _ time.Time) error {
		return s.loadEnd(name, record)
	}, problem)
	if err != nil {
		s.log.Error(err, "Checkpoints of ends of pods cannot be read; these ends may not be reported",
			"path", s.endings.path)
	}
	if s.key != nil {
		removed, err := s.objects.purgeAside()
		for _, path := range removed {
			s.log.Info("Checkpoint that was set aside is removed, since a secret in it can be read", "path", path)
		}
		if err != nil {
			s.log.Error(err, "Checkpoints that were set aside may have secrets that can be read",
				"path", s.objects.aside)
		}
	}
	err = s.objects.read(ctx, func(name string, record []byte, _ time.Time) error {
		return s.loadObject(name, record)
	}, problem)
	if err != nil {
		s.log.Error(err, "Checkpoints of secrets and config maps cannot be read", "path", s.objects.path)
	}
	s.dropObjects()
	for ref := range s.references {
		if s.held[ref] == nil {
			s.stale[ref] = struct{}{} // Run looks for it
			s.dirty.Notify()
		}
	}
	pods := slices.Collect(maps.Values(s.kept))
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return pods
}

// Read returns the pods of the records in the directory, sorted by namespace and name, with the annotations that they
// were kept with. It is for programs that show what an agent has left: unlike [Dir.Load], it changes nothing on the
// disk. It skips records that cannot be used; the error joins why.
func Read(ctx context.Context, dir string) ([]*v1.Pod, error) {
	s, err := New(dir, Options{})
	if err != nil {
		return nil, err
	}
	s.pods.readOnly = true
	var pods []*v1.Pod
	var errs []error
	err = s.pods.read(ctx, func(name string, record []byte, _ time.Time) error {
		pod, err := s.podOf(name, record)
		if err == nil {
			pods = append(pods, pod)
		}
		return err
	}, func(path string, _ bool, err error) { errs = append(errs, fmt.Errorf("checkpoint: %s: %w", path, err)) })
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return pods, errors.Join(append(errs, err)...)
}

// podOf returns the pod of a record. mu is held.
func (s *Dir) podOf(name string, record []byte) (*v1.Pod, error) {
	data, err := unpack(name, record, nil)
	if err != nil {
		return nil, err
	}
	pod := &v1.Pod{}
	if err := json.Unmarshal(data, pod); err != nil {
		return nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	if !podspec.IsFileName(pod.UID) || string(pod.UID) != name && fileOfPod(pod.UID).name != name {
		return nil, fmt.Errorf("%w of that name: the pod in it has UID %q", errForeign, pod.UID)
	}
	// The same as in podconfig, so that what ran is restored.
	if _, errs := podvalidation.Accept(pod,
		"", pod.Annotations[podspec.AnnotationConfigSource] == podspec.SourceAPI); len(errs) > 0 {
		return nil, fmt.Errorf("pod %s in it is not valid: %w", runtime.RefOf(pod), text.JoinErrors(errs))
	}
	f := fileOfPod(pod.UID)
	if f.name != name { // an older version has written it
		s.set(file{name: name}, nil)
		s.set(f, pod)
		return pod, nil
	}
	s.onDisk[f] = sha256.Sum256(data)
	return pod, nil
}
