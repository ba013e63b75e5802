package process

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// sandboxRecord is the record of a sandbox on disk.
type sandboxRecord struct {
	ID             string                  `json:"id"`
	Config         *criv1.PodSandboxConfig `json:"config"`
	RuntimeHandler string                  `json:"runtimeHandler,omitempty"`
	CreatedAt      int64                   `json:"createdAt"` // Unix nanoseconds
	// Boot is the boot ID at its creation. After a reboot, the sandbox is not ready.
	Boot     string   `json:"boot"`
	Stopped  bool     `json:"stopped,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
	// Cgroup has the cgroups of the pod. They are made with its first container, so that they are recorded
	// before.
	Cgroup supervise.Cgroup `json:"cgroup,omitzero"`
	// Updated are the resources of an update.
	Updated *criv1.LinuxContainerResources `json:"updated,omitempty"`
}

// sandbox is the sandbox of a pod. No process runs for it.
type sandbox struct {
	mu sync.Mutex // guards rec.Stopped, rec.Updated, reported and removed; the rest of rec never changes
	// reported means that nothing of it runs, and that the event of its stop was published.
	reported bool
	// removed means that no container may be created in it any more.
	removed bool
	rec     sandboxRecord
	// limiting is held while the limits of the pod are changed.
	limiting sync.Mutex
	// unlimited has the limits that a container of the pod does not have. limiting guards it.
	unlimited struct{ cpu, memory bool }

	// containers are those in the sandbox, by ID. [Server].mu guards them.
	containers map[string]*container
}

func newSandbox(rec sandboxRecord) *sandbox {
	return &sandbox{rec: rec, containers: map[string]*container{}}
}

func (b *sandbox) state() criv1.PodSandboxState {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rec.Stopped {
		return criv1.PodSandboxState_SANDBOX_NOTREADY
	}
	return criv1.PodSandboxState_SANDBOX_READY
}

// newID returns 64 hexadecimal digits, like the IDs of other runtimes.
func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}

func (s *Server) sandboxFile(id string) string { return sandboxFile(s.opts.Dir, id) }

func sandboxFile(dir, id string) string { return filepath.Join(dir, "sandboxes", id+".json") }

// RunPodSandbox implements CRI. It makes a record and no process.
func (s *runtimeService) RunPodSandbox(_ context.Context,
	req *criv1.RunPodSandboxRequest) (*criv1.RunPodSandboxResponse, error) {
	config := req.GetConfig()
	if h := req.GetRuntimeHandler(); h != "" && h != Name {
		return nil, status.Errorf(codes.InvalidArgument, "there is no runtime handler %q, only the default one and %q",
			h, Name)
	}
	meta := config.GetMetadata()
	about := "sandbox of pod " + meta.GetNamespace() + "/" + meta.GetName()
	found := checkSandbox(config, &s.host)
	if err := found.err(about); err != nil {
		return nil, err
	}
	if dir := config.GetLogDirectory(); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, status.Errorf(codes.Internal, "%s: making its log directory: %v", about, err)
		}
	}
	b := newSandbox(sandboxRecord{
		ID: newID(), Config: config, RuntimeHandler: req.GetRuntimeHandler(),
		CreatedAt: time.Now().UnixNano(), Boot: s.boot, Warnings: found.warnings,
	})
	if config.GetLinux().GetCgroupParent() == "" {
		b.rec.Cgroup = s.cgroups.ofPod(b.rec.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.sandboxes {
		o := other.rec.Config.GetMetadata()
		if o.GetUid() == meta.GetUid() && o.GetName() == meta.GetName() && o.GetNamespace() == meta.GetNamespace() &&
			o.GetAttempt() == meta.GetAttempt() {
			return nil, status.Errorf(codes.AlreadyExists, "%s: attempt %d of it exists: %s", about, meta.GetAttempt(),
				other.rec.ID)
		}
	}
	if err := supervise.WriteFile(s.sandboxFile(b.rec.ID), &b.rec); err != nil {
		return nil, status.Errorf(codes.Internal, "%s: recording it: %v", about, err)
	}
	s.sandboxes[b.rec.ID] = b
	s.warn(found, "pod", meta.GetNamespace()+"/"+meta.GetName())
	s.publishLocked(b.rec.ID, criv1.ContainerEventType_CONTAINER_CREATED_EVENT, b)
	s.publishLocked(b.rec.ID, criv1.ContainerEventType_CONTAINER_STARTED_EVENT, b)
	return &criv1.RunPodSandboxResponse{PodSandboxId: b.rec.ID}, nil
}

// StopPodSandbox implements CRI. It kills the containers in the sandbox. It succeeds if
// the sandbox does not exist.
func (s *runtimeService) StopPodSandbox(ctx context.Context,
	req *criv1.StopPodSandboxRequest) (*criv1.StopPodSandboxResponse, error) {
	b, err := s.sandbox(req.GetPodSandboxId())
	return &criv1.StopPodSandboxResponse{}, ifFound(b, err,
		func(b *sandbox) error { return s.stopSandbox(ctx, b, true) })
}

// stopSandbox kills the containers in the sandbox. With record, it records that the
// sandbox is stopped.
func (s *Server) stopSandbox(ctx context.Context, b *sandbox, record bool) error {
	b.mu.Lock()
	b.rec.Stopped = true // from here on no container is started in it
	rec, reported := b.rec, b.reported
	b.mu.Unlock()
	var g errgroup.Group
	for _, c := range s.containersOf(b) {
		g.Go(func() error { return s.stop(ctx, c, 0) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if reported {
		return nil
	}
	b.limiting.Lock()
	if err := b.rec.Cgroup.Remove(ctx); err != nil {
		s.opts.Logger.Error(err, "Cannot remove a pod's cgroup", "sandbox", rec.ID)
	}
	b.limiting.Unlock()
	if record { // not synced: after a power loss every sandbox is stopped
		if err := supervise.WriteFile(s.sandboxFile(rec.ID), &rec); err != nil {
			// The stop is no failure: on a full disk, the removal that follows it gives space back.
			s.opts.Logger.Error(err, "Cannot record that a sandbox is stopped; to the next server it is ready, "+
				"without containers that run", "sandbox", rec.ID)
		}
	}
	b.mu.Lock()
	reported, b.reported = b.reported, true
	b.mu.Unlock()
	if !reported {
		s.publish(rec.ID, criv1.ContainerEventType_CONTAINER_STOPPED_EVENT, b)
	}
	return nil
}

// containersOf returns the containers in the sandbox.
func (s *Server) containersOf(b *sandbox) []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(b.containers))
}

// RemovePodSandbox implements CRI. It kills and removes the containers in the sandbox. It
// succeeds if the sandbox does not exist.
func (s *runtimeService) RemovePodSandbox(ctx context.Context,
	req *criv1.RemovePodSandboxRequest) (*criv1.RemovePodSandboxResponse, error) {
	b, err := s.sandbox(req.GetPodSandboxId())
	return &criv1.RemovePodSandboxResponse{}, ifFound(b, err, func(b *sandbox) error { return s.removeSandbox(ctx, b) })
}

func (s *runtimeService) removeSandbox(ctx context.Context, b *sandbox) error {
	b.mu.Lock()
	b.removed = true
	b.mu.Unlock()
	if err := s.stopSandbox(ctx, b, false); err != nil {
		return err
	}
	var errs []error
	for _, c := range s.containersOf(b) {
		errs = append(errs, s.remove(ctx, c))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := s.removeLinks(b.rec.ID); err != nil {
		return status.Errorf(codes.Internal, "sandbox %s: %v", b.rec.ID, err)
	}
	// A container must not survive a power loss without its sandbox. A sandbox may survive
	// it: it is not ready then, and has no containers.
	if err := s.containersDir.sync(); err != nil {
		return status.Errorf(codes.Internal, "sandbox %s: syncing the removal of its containers: %v", b.rec.ID, err)
	}
	if err := os.Remove(s.sandboxFile(b.rec.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return status.Errorf(codes.Internal, "sandbox %s: %v", b.rec.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.sandboxes[b.rec.ID]; ok {
		delete(s.sandboxes, b.rec.ID)
		s.publishLocked(b.rec.ID, criv1.ContainerEventType_CONTAINER_DELETED_EVENT, b)
	}
	return nil
}

// PodSandboxStatus implements CRI.
func (s *runtimeService) PodSandboxStatus(_ context.Context,
	req *criv1.PodSandboxStatusRequest) (*criv1.PodSandboxStatusResponse, error) {
	b, err := s.sandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	resp := &criv1.PodSandboxStatusResponse{Status: s.sandboxStatus(b), Timestamp: time.Now().UnixNano()}
	for _, c := range s.containersOf(b) {
		resp.ContainersStatuses = append(resp.ContainersStatuses, c.criStatus())
	}
	if req.GetVerbose() {
		resp.Info = info(map[string]any{"config": b.rec.Config, "warnings": b.rec.Warnings, "cgroup": b.rec.Cgroup})
	}
	return resp, nil
}

func (s *Server) sandboxStatus(b *sandbox) *criv1.PodSandboxStatus {
	config := b.rec.Config
	network := &criv1.PodSandboxNetworkStatus{}
	st := b.state()
	// In CRI, a sandbox on the host's network has no address.
	onHost := config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == criv1.NamespaceMode_NODE
	if st == criv1.PodSandboxState_SANDBOX_READY && !onHost {
		network.Ip = s.ips[0]
		for _, ip := range s.ips[1:] {
			network.AdditionalIps = append(network.AdditionalIps, &criv1.PodIP{Ip: ip})
		}
	}
	// The requested namespaces, not the real ones: clients compare them with the spec.
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	return &criv1.PodSandboxStatus{
		Id: b.rec.ID, Metadata: config.GetMetadata(), State: st, CreatedAt: b.rec.CreatedAt,
		Network: network, Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		RuntimeHandler: b.rec.RuntimeHandler,
		Linux:          &criv1.LinuxPodSandboxStatus{Namespaces: &criv1.Namespace{Options: options}},
	}
}

// ListPodSandbox implements CRI.
func (s *runtimeService) ListPodSandbox(_ context.Context,
	req *criv1.ListPodSandboxRequest) (*criv1.ListPodSandboxResponse, error) {
	return &criv1.ListPodSandboxResponse{Items: s.listSandboxes(req.GetFilter())}, nil
}

func (s *Server) listSandboxes(f *criv1.PodSandboxFilter) []*criv1.PodSandbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*criv1.PodSandbox
	for _, b := range s.sandboxes {
		config, st := b.rec.Config, b.state()
		if !strings.HasPrefix(b.rec.ID, f.GetId()) || f.GetState() != nil && f.GetState().GetState() != st ||
			!selects(f.GetLabelSelector(), config.GetLabels()) {
			continue
		}
		all = append(all, &criv1.PodSandbox{
			Id: b.rec.ID, Metadata: config.GetMetadata(), State: st, CreatedAt: b.rec.CreatedAt,
			Labels: config.GetLabels(), Annotations: config.GetAnnotations(), RuntimeHandler: b.rec.RuntimeHandler,
		})
	}
	return all
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
