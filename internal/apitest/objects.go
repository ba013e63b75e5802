package apitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourceapi "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// objects are the objects other than pods, by their resource and their namespace/name.
type objects map[string]map[string]runtime.Object

// newObject returns an empty object of the resource and its list; nil if there is no such
// resource.
func newObject(resource string) (object, list runtime.Object) {
	switch resource {
	case "nodes":
		return &v1.Node{}, &v1.NodeList{}
	case "leases":
		return &coordinationv1.Lease{}, &coordinationv1.LeaseList{}
	case "events":
		return &v1.Event{}, &v1.EventList{}
	case "services":
		return &v1.Service{}, &v1.ServiceList{}
	case "serviceaccounts":
		return &v1.ServiceAccount{}, &v1.ServiceAccountList{}
	case "secrets":
		return &v1.Secret{}, &v1.SecretList{}
	case "configmaps":
		return &v1.ConfigMap{}, &v1.ConfigMapList{}
	case "persistentvolumes":
		return &v1.PersistentVolume{}, &v1.PersistentVolumeList{}
	case "persistentvolumeclaims":
		return &v1.PersistentVolumeClaim{}, &v1.PersistentVolumeClaimList{}
	case "clustertrustbundles":
		return &certificatesv1.ClusterTrustBundle{}, &certificatesv1.ClusterTrustBundleList{}
	case "resourceclaims":
		return &resourceapi.ResourceClaim{}, &resourceapi.ResourceClaimList{}
	case "runtimeclasses":
		return &nodev1.RuntimeClass{}, &nodev1.RuntimeClassList{}
	case "csidrivers":
		return &storagev1.CSIDriver{}, &storagev1.CSIDriverList{}
	case "csinodes":
		return &storagev1.CSINode{}, &storagev1.CSINodeList{}
	case "volumeattachments":
		return &storagev1.VolumeAttachment{}, &storagev1.VolumeAttachmentList{}
	}
	return nil, nil
}

// Put creates or replaces an object that is no pod, as a user does.
func (s *Server) Put(resource string, object runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putObject(resource, object.DeepCopyObject())
}

// Object returns an object that is no pod, nil if there is none.
func (s *Server) Object(resource, namespace, name string) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if object := s.objects[resource][path.Join(namespace, name)]; object != nil {
		return object.DeepCopyObject()
	}
	return nil
}

// Remove removes an object that is no pod, as a user does.
func (s *Server) Remove(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeObject(resource, path.Join(namespace, name))
}

// all returns all objects of the resource in order. s.mu is held.
func (s *Server) all(resource string) (out []runtime.Object) {
	if resource == "pods" {
		for _, key := range slices.Sorted(maps.Keys(s.pods)) {
			out = append(out, s.pods[key])
		}
		return out
	}
	for _, key := range slices.Sorted(maps.Keys(s.objects[resource])) {
		out = append(out, s.objects[resource][key])
	}
	return out
}

// bookmark returns the object that ends the initial events of a watch. s.mu is held.
func (s *Server) bookmark(r *Request) runtime.Object {
	end, _ := newObject(r.Resource)
	if r.Resource == "pods" {
		end = &v1.Pod{}
	}
	meta := end.(metav1.Object)
	meta.SetResourceVersion(strconv.FormatInt(s.version, 10))
	meta.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return end
}

// putObject stores an object and returns it. s.mu is held.
func (s *Server) putObject(resource string, object runtime.Object) runtime.Object {
	meta := object.(metav1.Object)
	key := path.Join(meta.GetNamespace(), meta.GetName())
	kind := "MODIFIED"
	if s.objects[resource][key] == nil {
		kind = "ADDED"
		s.uids++
		if meta.GetUID() == "" {
			meta.SetUID(types.UID(fmt.Sprintf("api-%d", s.uids)))
		}
		meta.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	s.version++
	meta.SetResourceVersion(strconv.FormatInt(s.version, 10))
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]runtime.Object{}
	}
	s.objects[resource][key] = object
	s.happened(kind, resource, object)
	return withKind(object)
}

// removeObject removes an object. s.mu is held.
func (s *Server) removeObject(resource, key string) {
	object := s.objects[resource][key]
	if object == nil {
		return
	}
	delete(s.objects[resource], key)
	s.version++
	object = object.DeepCopyObject()
	object.(metav1.Object).SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.happened("DELETED", resource, object)
}

// handleObject handles a request for an object that is no pod. s.mu is held.
func (s *Server) handleObject(r *Request) (any, error) {
	if r.Resource == "serviceaccounts" && r.Subresource == "token" {
		return token(r)
	}
	object, list := newObject(r.Resource)
	group := schema.GroupResource{Resource: r.Resource}
	if object == nil {
		return nil, apierrors.NewNotFound(group, r.Name)
	}
	key := path.Join(r.Namespace, r.Name)
	old := s.objects[r.Resource][key]
	switch r.Verb {
	case "list":
		var items []runtime.Object
		for _, o := range s.all(r.Resource) {
			if selected(r, o) {
				items = append(items, o)
			}
		}
		if err := apimeta.SetList(list, items); err != nil {
			return nil, err
		}
		list.(metav1.ListInterface).SetResourceVersion(strconv.FormatInt(s.version, 10))
		return withKind(list), nil
	case "create":
		if err := decode(r, object); err != nil {
			return nil, err
		}
		meta := object.(metav1.Object)
		meta.SetNamespace(r.Namespace)
		if s.objects[r.Resource][path.Join(r.Namespace, meta.GetName())] != nil {
			return nil, apierrors.NewAlreadyExists(group, meta.GetName())
		}
		return s.putObject(r.Resource, object), nil
	}
	if old == nil {
		return nil, apierrors.NewNotFound(group, r.Name)
	}
	switch r.Verb {
	case "get":
		return withKind(old), nil
	case "update":
		if err := decode(r, object); err != nil {
			return nil, err
		}
		if v := object.(metav1.Object).GetResourceVersion(); v != "" && v != old.(metav1.Object).GetResourceVersion() {
			return nil, apierrors.NewConflict(group, r.Name, fmt.Errorf("the object has been modified"))
		}
		return s.putObject(r.Resource, object), nil
	case "patch":
		before, err := json.Marshal(old)
		if err != nil {
			return nil, err
		}
		after, err := strategicpatch.StrategicMergePatch(before, r.Body, object)
		if err == nil {
			err = json.Unmarshal(after, object)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return s.putObject(r.Resource, object), nil
	case "delete":
		s.removeObject(r.Resource, key)
		return withKind(old), nil
	}
	return nil, apierrors.NewMethodNotSupported(group, r.Verb)
}

// token answers a request for the token of a service account.
func token(r *Request) (any, error) {
	request := &authenticationv1.TokenRequest{}
	if err := decode(r, request); err != nil {
		return nil, err
	}
	seconds := int64(3600)
	if s := request.Spec.ExpirationSeconds; s != nil {
		seconds = *s
	}
	request.Spec.ExpirationSeconds = &seconds
	request.Status = authenticationv1.TokenRequestStatus{
		Token: "token of " + r.Namespace + "/" +
			r.Name, ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(seconds) * time.Second)),
	}
	return withKind(request), nil
}
