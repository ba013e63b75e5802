package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

// resources has an empty object of each resource that the API server of the tests has.
var resources = map[string]kruntime.Object{
	"nodes": &v1.Node{}, "pods": &v1.Pod{}, "services": &v1.Service{}, "events": &v1.Event{},
	"leases": &coordinationv1.Lease{}, "runtimeclasses": &nodev1.RuntimeClass{},
}

// apiServer is an HTTP handler that stores objects as an API server does, without any rules,
// and serves lists and watches of them. Nothing can be deleted.
type apiServer struct {
	mu      sync.Mutex
	version int
	objects map[string]map[string]kruntime.Object // by resource and namespace/name
	changed chan struct{}                         // closed with the next change
}

func newAPIServer() *apiServer {
	return &apiServer{objects: map[string]map[string]kruntime.Object{}, changed: make(chan struct{})}
}

// put stores an object and returns it with its kind.
func (s *apiServer) put(resource string, object kruntime.Object) kruntime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store(resource, object)
}

// store is put while s.mu is held.
func (s *apiServer) store(resource string, object kruntime.Object) kruntime.Object {
	meta := object.(metav1.Object)
	s.version++
	meta.SetResourceVersion(strconv.Itoa(s.version))
	if meta.GetUID() == "" {
		meta.SetUID(types.UID(fmt.Sprintf("uid-%d", s.version)))
	}
	if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil {
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]kruntime.Object{}
	}
	s.objects[resource][path.Join(meta.GetNamespace(), meta.GetName())] = object
	close(s.changed)
	s.changed = make(chan struct{})
	return object
}

// all returns the objects of a resource, which must not be changed.
func (s *apiServer) all(resource string) []kruntime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.objects[resource]))
}

// ServeHTTP implements [http.Handler].
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// api v1 [namespaces ns] pods [name [sub]], or apis group v1 …
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" {
		parts = parts[1:]
	}
	parts = append(parts[2:], "", "", "")
	namespace := ""
	if parts[0] == "namespaces" && parts[2] != "" {
		namespace, parts = parts[1], parts[2:]
	}
	resource, name := parts[0], parts[1]
	kind := resources[resource]
	switch {
	case kind == nil:
		respond(w, nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name))
	case r.Method == http.MethodGet && name == "" && r.URL.Query().Get("watch") != "":
		s.watch(w, r, resource)
	case r.Method == http.MethodGet && name == "":
		s.list(w, r, resource)
	default:
		object, err := s.single(r, resource, namespace, name)
		respond(w, object, err)
	}
}

// single handles a request for one object.
func (s *apiServer) single(r *http.Request, resource, namespace, name string) (any, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	object := resources[resource].DeepCopyObject()
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if namespace != "" {
			object.(metav1.Object).SetNamespace(namespace)
		}
		return s.store(resource, object), nil
	}
	old := s.objects[resource][path.Join(namespace, name)]
	if old == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name)
	}
	switch r.Method {
	case http.MethodGet:
		return old, nil
	case http.MethodPatch:
		before, err := json.Marshal(old)
		if err != nil {
			return nil, err
		}
		after, err := strategicpatch.StrategicMergePatch(before, body, object)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if err := json.Unmarshal(after, object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return s.store(resource, object), nil
	}
	return nil, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: resource}, r.Method)
}

// since returns the requested objects with a later version, and the version of the server.
// s.mu is held.
func (s *apiServer) since(r *http.Request, resource string, version int) (objects []kruntime.Object, now int) {
	field, value, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
	for _, o := range s.objects[resource] {
		meta := o.(metav1.Object)
		if v, _ := strconv.Atoi(meta.GetResourceVersion()); v <= version {
			continue
		}
		pod, isPod := o.(*v1.Pod)
		if field == "metadata.name" && value != meta.GetName() || field == "spec.nodeName" && isPod && value != pod.Spec.NodeName {
			continue
		}
		objects = append(objects, o)
	}
	return objects, s.version
}

func (s *apiServer) list(w http.ResponseWriter, r *http.Request, resource string) {
	s.mu.Lock()
	items, version := s.since(r, resource, 0)
	s.mu.Unlock()
	kinds, _, err := scheme.Scheme.ObjectKinds(resources[resource])
	if err != nil {
		respond(w, nil, err)
		return
	}
	respond(w, map[string]any{
		"kind": kinds[0].Kind + "List", "apiVersion": kinds[0].GroupVersion().String(),
		"metadata": metav1.ListMeta{ResourceVersion: strconv.Itoa(version)}, "items": slices.Concat([]kruntime.Object{}, items),
	}, nil)
}

// watch serves a watch until the request ends. Changes that come together are one event.
func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, resource string) {
	version, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	kind := "MODIFIED"
	if initial {
		version, kind = 0, "ADDED"
	}
	w.Header().Set("Content-Type", "application/json")
	out, flush := json.NewEncoder(w), http.NewResponseController(w).Flush
	for {
		s.mu.Lock()
		objects, now := s.since(r, resource, version)
		changed := s.changed
		s.mu.Unlock()
		version = now
		for _, o := range objects {
			_ = out.Encode(map[string]any{"type": kind, "object": o})
		}
		if initial {
			end := resources[resource].DeepCopyObject()
			kinds, _, _ := scheme.Scheme.ObjectKinds(end)
			end.GetObjectKind().SetGroupVersionKind(kinds[0])
			end.(metav1.Object).SetResourceVersion(strconv.Itoa(now))
			end.(metav1.Object).SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
			_ = out.Encode(map[string]any{"type": "BOOKMARK", "object": end})
			initial, kind = false, "MODIFIED"
		}
		if flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// respond writes the object, or the error as a status.
func respond(w http.ResponseWriter, object any, err error) {
	code := http.StatusOK
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		if s, ok := err.(apierrors.APIStatus); ok {
			status = s.Status()
		}
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		object, code = &status, int(status.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}
