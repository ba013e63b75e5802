// Package apitest has an API server in memory for tests: pods with the rules that node agents
// depend on. These are resource versions, generations, UID preconditions, graceful deletion,
// finalizers, the status subresource, lists, watches with bookmarks, and initial events. It
// also has the other objects that an agent reads and writes, without rules of their own.
//
// It is reached through an http.RoundTripper, without sockets, so that it works in virtual
// time (testing/synctest) with a real client.
package apitest

import (
	"bytes"
	"context"
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

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Request is one request that a [Server] receives.
type Request struct {
	// Verb is get, list, watch, create, update, patch or delete.
	Verb string
	// Resource is the plural of what is requested, such as pods.
	Resource                     string
	Namespace, Name, Subresource string
	Body                         []byte
	HTTP                         *http.Request
}

// String returns the request in one line, such as "patch default/web status" for a pod, and
// "get nodes/edge-7" for another object.
func (r *Request) String() string {
	s := r.Verb
	if r.Resource != "pods" {
		s += " " + strings.Trim(path.Join(r.Namespace, r.Resource, r.Name), "/")
	} else if r.Name != "" {
		s += " " + r.Namespace + "/" + r.Name
	}
	if r.Subresource != "" {
		s += " " + r.Subresource
	}
	return s
}

// Server is an API server in memory. Make one with [New]. All methods are safe for concurrent
// use.
type Server struct {
	mu      sync.Mutex
	pods    map[string]*v1.Pod // by namespace/name
	objects objects
	version int64
	uids    int
	// events has all changes since compacted.
	events    []event
	compacted int64
	// waiting has the channels that are closed with the next change. They are made by the watches,
	// so that a server that is made outside of a bubble of testing/synctest works in it.
	waiting  []chan struct{}
	requests []string
	before   func(*Request) (*http.Response, error)
	after    func(*Request) error
	mutate   func(*v1.Pod)
	watches  map[int]context.CancelFunc
	nextID   int
}

type event struct {
	version  int64
	kind     string
	resource string
	object   runtime.Object
}

// New returns a server without pods.
func New() *Server {
	return &Server{pods: map[string]*v1.Pod{}, objects: objects{}, version: 100, watches: map[int]context.CancelFunc{}}
}

// Client returns a client of the server without a limit of its own.
func (s *Server) Client() kubernetes.Interface {
	config := &rest.Config{Host: "http://apitest", QPS: -1}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: s})
	if err != nil {
		panic(err)
	}
	return client
}

// Before sets a function that is called for each request. If it returns a response or an
// error, the server does not handle the request. It may block until the context of the
// request ends.
func (s *Server) Before(f func(*Request) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// After sets a function that is called for each request that the server has handled. If it
// returns an error, the response is lost.
func (s *Server) After(f func(*Request) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = f
}

// Mutate sets a function that changes each pod whose status is patched before it is stored, as
// a server does that does not know a field.
func (s *Server) Mutate(f func(*v1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mutate = f
}

// Hang blocks until the request is given up, for use in [Server.Before].
func Hang(r *Request) (*http.Response, error) {
	<-r.HTTP.Context().Done()
	return nil, r.HTTP.Context().Err()
}

// Requests returns the requests since the last call of Requests, without watches.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.requests
	s.requests = nil
	return out
}

// BreakWatches ends all watches.
func (s *Server) BreakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, cancel := range s.watches {
		cancel()
	}
}

// Compact forgets all events, so that a watch from an earlier version gets 410 Gone.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.compacted, s.events = s.version, nil
}

// RoundTrip implements [http.RoundTripper].
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	req := parse(r)
	s.mu.Lock()
	before, after := s.before, s.after
	if req.Verb != "watch" {
		s.requests = append(s.requests, req.String())
	}
	s.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if before != nil {
		if resp, err := before(req); resp != nil || err != nil {
			return resp, err
		}
	}
	var resp *http.Response
	if req.Verb == "watch" {
		resp = s.watch(req)
	} else {
		obj, err := s.handle(req)
		resp = Response(obj, err)
	}
	if after != nil {
		if err := after(req); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

func parse(r *http.Request) *Request {
	req := &Request{HTTP: r}
	if r.Body != nil {
		req.Body, _ = io.ReadAll(r.Body)
	}
	// api v1 [namespaces ns] pods [name [sub]], or apis group v1 …
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" {
		parts = parts[1:]
	}
	parts = parts[2:]
	if parts[0] == "namespaces" && len(parts) > 2 {
		req.Namespace, parts = parts[1], parts[2:]
	}
	req.Resource = parts[0]
	if len(parts) > 1 {
		req.Name = parts[1]
	}
	if len(parts) > 2 {
		req.Subresource = parts[2]
	}
	req.Verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch",
		"DELETE": "delete"}[r.Method]
	if req.Verb == "get" && req.Name == "" {
		req.Verb = "list"
		if r.URL.Query().Get("watch") != "" {
			req.Verb = "watch"
		}
	}
	if pod := (&v1.Pod{}); req.Verb == "create" && req.Resource == "pods" && decode(req, pod) == nil {
		req.Name = pod.Name
	}
	return req
}

// Response returns the response with the object, or with the error as a status.
func Response(obj any, err error) *http.Response {
	code := http.StatusOK
	if err != nil {
		status := apierrors.NewInternalError(err).Status()
		if s, ok := err.(apierrors.APIStatus); ok {
			status = s.Status()
		}
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		obj, code = &status, int(status.Code)
	}
	body, _ := json.Marshal(obj)
	return &http.Response{
		StatusCode: code, Status: strconv.Itoa(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader(body)),
	}
}

var resource = schema.GroupResource{Resource: "pods"}

// handle handles all requests but watches.
func (s *Server) handle(r *Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Resource != "pods" {
		return s.handleObject(r)
	}
	switch r.Verb {
	case "list":
		list := &v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.version, 10)}}
		for _, key := range slices.Sorted(maps.Keys(s.pods)) {
			if selected(r, s.pods[key]) {
				list.Items = append(list.Items, *s.pods[key])
			}
		}
		return list, nil
	case "get":
		if pod := s.pods[r.Namespace+"/"+r.Name]; pod != nil {
			return typed(pod), nil
		}
		return nil, apierrors.NewNotFound(resource, r.Name)
	case "create":
		pod := &v1.Pod{}
		if err := decode(r, pod); err != nil {
			return nil, err
		}
		pod.Namespace = r.Namespace
		return s.create(pod, "")
	case "patch":
		return s.patch(r)
	case "delete":
		opts := metav1.DeleteOptions{}
		if err := decode(r, &opts); err != nil {
			return nil, err
		}
		return s.delete(r.Namespace, r.Name, opts)
	}
	return nil, apierrors.NewMethodNotSupported(resource, r.Verb)
}

// decode decodes the body, JSON or protobuf. An empty body changes nothing.
func decode(r *Request, into runtime.Object) error {
	if len(r.Body) == 0 {
		return nil
	}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, into); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// selected reports whether the request is for the object, which has the requested type.
func selected(r *Request, object runtime.Object) bool {
	selector := r.HTTP.URL.Query().Get("fieldSelector")
	if node, ok := strings.CutPrefix(selector, "spec.nodeName="); ok {
		return node == object.(*v1.Pod).Spec.NodeName
	}
	meta := object.(metav1.Object)
	if name, ok := strings.CutPrefix(selector, metav1.ObjectNameField+"="); ok && name != meta.GetName() {
		return false
	}
	return r.Namespace == "" || r.Namespace == meta.GetNamespace()
}

func typed(pod *v1.Pod) *v1.Pod { return withKind(pod).(*v1.Pod) }

// withKind returns a copy of the object with its kind, as servers encode it.
func withKind(object runtime.Object) runtime.Object {
	out := object.DeepCopyObject()
	if kinds, _, err := scheme.Scheme.ObjectKinds(out); err == nil {
		out.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	return out
}

// put makes the pod the newest state of its name. s.mu is held.
func (s *Server) put(kind string, pod *v1.Pod) {
	s.version++
	pod.ResourceVersion = strconv.FormatInt(s.version, 10)
	key := pod.Namespace + "/" + pod.Name
	if kind == "DELETED" {
		delete(s.pods, key)
	} else {
		s.pods[key] = pod
	}
	s.happened(kind, "pods", pod)
}

// happened has all watches deliver an event. s.mu is held.
func (s *Server) happened(kind, resource string, object runtime.Object) {
	s.events = append(s.events, event{s.version, kind, resource, object})
	s.notify()
}

func (s *Server) notify() {
	for _, c := range s.waiting {
		close(c)
	}
	s.waiting = nil
}

// watch serves a watch until the request or the watch ends.
func (s *Server) watch(r *Request) *http.Response {
	query := r.HTTP.URL.Query()
	from, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	initial := query.Get("sendInitialEvents") == "true"

	s.mu.Lock()
	defer s.mu.Unlock()
	if !initial && from < s.compacted {
		return Response(nil, apierrors.NewResourceExpired("too old resource version"))
	}
	var first []event
	if initial {
		for _, object := range s.all(r.Resource) {
			if selected(r, object) {
				first = append(first, event{s.version, "ADDED", r.Resource, object})
			}
		}
		first = append(first, event{s.version, "BOOKMARK", r.Resource, s.bookmark(r)})
		from = s.version
	}
	ctx, cancel := context.WithCancel(r.HTTP.Context())
	id := s.nextID
	s.nextID++
	s.watches[id] = cancel
	reader, writer := io.Pipe()
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		delete(s.watches, id)
		s.mu.Unlock()
		err := error(io.EOF)
		if r.HTTP.Context().Err() != nil {
			err = r.HTTP.Context().Err()
		}
		_ = writer.CloseWithError(err)
	})
	go func() {
		defer cancel()
		s.stream(ctx, r, writer, first, from)
	}()
	resp := Response(nil, nil)
	resp.ContentLength, resp.Body = -1, reader
	return resp
}

func (s *Server) stream(ctx context.Context, r *Request, w io.Writer, next []event, from int64) {
	enc := json.NewEncoder(w)
	for {
		for _, e := range next {
			if err := enc.Encode(map[string]any{"type": e.kind, "object": withKind(e.object)}); err != nil {
				return
			}
		}
		s.mu.Lock()
		next = nil
		for _, e := range s.events {
			if e.version <= from {
				continue
			}
			from = e.version
			if e.resource == r.Resource && selected(r, e.object) {
				next = append(next, e)
			}
		}
		changed := make(chan struct{})
		if next == nil {
			s.waiting = append(s.waiting, changed)
		}
		s.mu.Unlock()
		if next != nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// Event has all watches deliver an event, without a change of what is stored: a repeated or an
// old object.
func (s *Server) Event(kind string, pod *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.happened(kind, "pods", pod.DeepCopy())
}

func key(pod *v1.Pod) string { return fmt.Sprintf("%s/%s", pod.Namespace, pod.Name) }
