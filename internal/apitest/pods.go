package apitest

import (
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// Create creates the pod as a user does, with the UID that it has or a new one, and returns it.
func (s *Server) Create(pod *v1.Pod) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mustCreate(pod)
}

// Replace deletes what has the pod's name, without grace, and creates the pod, before anybody else
// can.
func (s *Server) Replace(pod *v1.Pod) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.delete(pod.Namespace, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	return s.mustCreate(pod)
}

// mustCreate is Create while s.mu is held.
func (s *Server) mustCreate(pod *v1.Pod) *v1.Pod {
	out, err := s.create(pod.DeepCopy(), pod.UID)
	if err != nil {
		panic(err)
	}
	return out
}

// Get returns the pod, nil if there is none.
func (s *Server) Get(namespace, name string) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[namespace+"/"+name].DeepCopy()
}

// Update changes the pod as another client does. It does nothing if there is none.
func (s *Server) Update(namespace, name string, change func(*v1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.pods[namespace+"/"+name]
	if old == nil {
		return
	}
	pod := old.DeepCopy()
	change(pod)
	s.store(old, pod)
}

// Delete deletes the pod as a user does; grace is nil for the pod's own grace period.
func (s *Server) Delete(namespace, name string, grace *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.delete(namespace, name, metav1.DeleteOptions{GracePeriodSeconds: grace})
}

func (s *Server) create(pod *v1.Pod, uid types.UID) (*v1.Pod, error) {
	if old := s.pods[key(pod)]; old != nil {
		return nil, apierrors.NewAlreadyExists(resource, pod.Name)
	}
	if pod.UID = uid; uid == "" {
		s.uids++
		pod.UID = types.UID(fmt.Sprintf("api-%d", s.uids))
	}
	pod.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	pod.Generation = 1
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = nil, nil
	pod.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: v1.PodQOSBestEffort}
	s.put("ADDED", pod)
	return typed(pod), nil
}

// store stores a new state of a pod, unless it is the same. s.mu is held.
func (s *Server) store(old, pod *v1.Pod) *v1.Pod {
	if equality.Semantic.DeepEqual(old, pod) {
		return old
	}
	if !equality.Semantic.DeepEqual(old.Spec, pod.Spec) {
		pod.Generation++
	}
	if old.DeletionTimestamp != nil && ptr.Deref(old.DeletionGracePeriodSeconds, 1) == 0 && len(pod.Finalizers) == 0 {
		s.put("DELETED", pod)
		return pod
	}
	s.put("MODIFIED", pod)
	return pod
}

func (s *Server) patch(r *Request) (*v1.Pod, error) {
	old := s.pods[r.Namespace+"/"+r.Name]
	if old == nil {
		return nil, apierrors.NewNotFound(resource, r.Name)
	}
	if r.Subresource != "status" {
		return nil, apierrors.NewBadRequest("this server patches the status only")
	}
	before, _ := json.Marshal(typed(old))
	after, err := strategicpatch.StrategicMergePatch(before, r.Body, v1.Pod{})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	patched := &v1.Pod{}
	if err := json.Unmarshal(after, patched); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if patched.UID != old.UID {
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, r.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "uid"), patched.UID, "field is immutable"),
		})
	}
	pod := old.DeepCopy()
	pod.Status = patched.Status
	if s.mutate != nil {
		s.mutate(pod)
	}
	return typed(s.store(old, pod)), nil
}

func (s *Server) delete(namespace, name string, opts metav1.DeleteOptions) (any, error) {
	old := s.pods[namespace+"/"+name]
	if old == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	if p := opts.Preconditions; p != nil && p.UID != nil && *p.UID != old.UID {
		return nil, apierrors.NewConflict(resource, name, fmt.Errorf("the UID in the precondition (%s) does not "+
			"match the UID in record (%s)", *p.UID, old.UID))
	}
	grace := ptr.Deref(old.Spec.TerminationGracePeriodSeconds, 30)
	if opts.GracePeriodSeconds != nil {
		grace = *opts.GracePeriodSeconds
	}
	if old.Status.Phase == v1.PodSucceeded || old.Status.Phase == v1.PodFailed {
		grace = 0
	}
	pod := old.DeepCopy()
	if old.DeletionTimestamp != nil && grace >= ptr.Deref(old.DeletionGracePeriodSeconds, 0) {
		return typed(old), nil // it is being deleted already
	}
	if grace == 0 && len(pod.Finalizers) == 0 {
		s.put("DELETED", pod)
		return typed(pod), nil
	}
	pod.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second)}
	pod.DeletionGracePeriodSeconds = &grace
	pod.Generation++
	s.put("MODIFIED", pod)
	return typed(pod), nil
}
