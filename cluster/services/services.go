package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubeletkit/kubeletkit/cluster/internal/listwatch"
	"github.com/kubeletkit/kubeletkit/cluster/internal/table"
	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// ErrNotRead is returned by [Services.Env] while the services are not known.
var ErrNotRead = errors.New("services have not yet been read at least once, cannot construct envvars")

// Options are the settings of [Services]. The zero value is valid.
type Options struct {
	// Checkpoint keeps the services, under the name "services". If nil, nothing is kept.
	Checkpoint runtime.States
	// Sync is called for each pod for which Env has failed, when the services are known. It
	// must not block. Agent.Sync starts the containers of the pod. If nil, nothing is called.
	Sync func(uid types.UID)
	// Logger. Default: that of package slog.
	Logger logr.Logger
}

// Services has the environment variables of the services of a cluster. Its methods are safe
// for concurrent use.
type Services struct {
	table *table.Table[service]
}

// New returns the services of the cluster. It does no I/O.
func New(client kubernetes.Interface, opts Options) (*Services, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	if client == nil {
		return nil, errors.New("services: the client is nil")
	}
	s := &Services{}
	var ready func(pod string)
	if opts.Sync != nil {
		ready = func(pod string) { opts.Sync(types.UID(pod)) }
	}
	s.table = table.New(table.Options[service]{
		Resource: listwatch.Resource{
			Name: "services", Client: client, Type: &v1.Service{},
			API: listwatch.Of(client.CoreV1().Services(metav1.NamespaceAll)),
			// There may be thousands of headless ones, as in kubelet (kubernetes#122394).
			FieldSelector: fields.OneTermNotEqualSelector("spec.clusterIP", v1.ClusterIPNone).String(),
			MaxBackoff:    5 * time.Second,
		},
		Reduce: func(object any) (string, service, bool) {
			o, ok := object.(*v1.Service)
			if !ok {
				return "", service{}, false
			}
			r, ok := reduce(o)
			return key(o.Namespace, o.Name), r, ok
		},
		Checkpoint: opts.Checkpoint, State: "services", Ready: ready, Logger: opts.Logger,
	})
	return s, nil
}

// Run watches the services until ctx ends, and then returns nil. A second call returns an
// error that wraps [runtime.ErrAlreadyRunning].
func (s *Services) Run(ctx context.Context) error {
	if err := s.table.Run(ctx); err != nil {
		return fmt.Errorf("services: %w", err)
	}
	return nil
}

// Env returns the variables of services for the containers of a pod. The error wraps [ErrNotRead], but
// never for a static pod. Or it wraps [podspec.ErrTooLong] if no process can have so many variables, or is
// the cause of ctx's end.
func (s *Services) Env(ctx context.Context, pod *v1.Pod) ([]v1.EnvVar, error) {
	var seen []service
	links := pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks
	find := func(all map[string]service) { seen = ofPod(all, pod.Namespace, links) }
	if podspec.IsStatic(pod) {
		_ = s.table.ReadNow(find) // as in kubelet, without those that are not known
		return bounded(pod, seen)
	}
	err := s.table.Read(ctx.Done(), string(pod.UID), find)
	switch {
	case err == nil:
		return bounded(pod, seen)
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	default:
		return nil, fmt.Errorf("%w: %w", ErrNotRead, err)
	}
}

// bounded returns the variables of the services, or an error if no process can have so many.
func bounded(pod *v1.Pod, seen []service) ([]v1.EnvVar, error) {
	env, fit := variables(seen, podspec.MaxArguments)
	if !fit {
		return nil, fmt.Errorf("environment variables of the services in namespace %s: %w: no process can have more "+
			"than %d bytes of variables; set enableServiceLinks of the pod to false",
			pod.Namespace, podspec.ErrTooLong, podspec.MaxArguments)
	}
	return env, nil
}
