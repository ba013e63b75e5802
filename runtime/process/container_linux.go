package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// containerRecord is the record of a container on disk. Its supervisor has files of its
// own.
type containerRecord struct {
	ID        string                 `json:"id"`
	SandboxID string                 `json:"sandboxID"`
	Config    *criv1.ContainerConfig `json:"config"`
	CreatedAt int64                  `json:"createdAt"` // Unix nanoseconds
	LogPath   string                 `json:"logPath,omitempty"`
	// Title is the argument of the supervisor, to be seen in a list of processes.
	Title    string           `json:"title"`
	User     supervise.User   `json:"user"`
	Cgroup   supervise.Cgroup `json:"cgroup"`
	Warnings []string         `json:"warnings,omitempty"`
	// Spec is for the supervisor. It is nil in memory.
	Spec *supervise.Spec `json:"spec"`
}

// container is a container. rec, dir and mark never change.
type container struct {
	rec containerRecord
	dir string
	// mark is the mark of the container's processes, see [supervise.Mark].
	mark string
	// busy holds one token while the container is started or removed.
	busy chan struct{}
	// updating is held while the resources are changed. The kernel may take long to lower a limit.
	updating sync.Mutex

	mu        sync.Mutex
	state     criv1.ContainerState
	started   time.Time
	process   supervise.State // valid if state is running
	exit      *supervise.Exit
	reason    string
	message   string
	resources *criv1.LinuxContainerResources
	// gone is closed when the container has ended.
	gone chan struct{}
	cpu  cpuSample
}

func newContainer(rec containerRecord, dir string) *container {
	mark := supervise.MarkOf(rec.Spec, rec.ID)
	rec.Spec = nil // only the supervisor needs it
	return &container{
		rec: rec, dir: dir, mark: mark, busy: make(chan struct{}, 1), gone: make(chan struct{}),
		state:     criv1.ContainerState_CONTAINER_CREATED,
		resources: rec.Config.GetLinux().GetResources(),
	}
}

// acquire waits until no other call starts or removes the container.
func (c *container) acquire(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (c *container) release() { <-c.busy }

func (c *container) about() string { return "container " + c.rec.Title }

func (s *Server) containerDir(id string) string { return filepath.Join(s.opts.Dir, "containers", id) }

const recordFile = supervise.RecordFile

// CreateContainer implements CRI. A request that cannot be met is refused with
// InvalidArgument, or is a warning in the container's status.
func (s *runtimeService) CreateContainer(ctx context.Context,
	req *criv1.CreateContainerRequest) (_ *criv1.CreateContainerResponse, err error) {
	b, err := s.sandbox(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	config, pod := req.GetConfig(), b.rec.Config
	meta := config.GetMetadata()
	title := pod.GetMetadata().GetNamespace() + "/" + pod.GetMetadata().GetName() + "/" + meta.GetName()
	found, env, links := checkContainer(config, pod, &s.host)
	if err := found.err("container " + title); err != nil {
		return nil, err
	}
	sec := config.GetLinux().GetSecurityContext()
	user, home, warning, err := resolveUser(sec, &s.host)
	if err != nil {
		return nil, status.Errorf(status.Code(err), "container %s: %s", title, status.Convert(err).Message())
	}
	if warning != "" {
		found.warn("%s", warning)
	}
	if len(links) > 0 && int(user.UID) != s.host.UID {
		return nil, status.Errorf(codes.InvalidArgument, "container %s: links to volumes are made for the server's "+
			"own user %d only, and not for user %d; set the annotation %s to env",
			title, s.host.UID, user.UID, MountsAnnotation)
	}
	if err := s.makeLinks(b, links); err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "container %s: %v", title, err)
	}
	rec := containerRecord{
		ID: newID(), SandboxID: b.rec.ID, Config: config, CreatedAt: time.Now().UnixNano(), Title: title, User: user,
	}
	if config.GetLogPath() != "" && pod.GetLogDirectory() != "" {
		rec.LogPath = filepath.Join(pod.GetLogDirectory(), config.GetLogPath())
		if err := os.MkdirAll(filepath.Dir(rec.LogPath), 0o755); err != nil {
			return nil, status.Errorf(codes.Internal, "container %s: making its log directory: %v", title, err)
		}
	}
	for _, m := range s.limit(b, &rec) {
		warn := found.warn
		if !s.limitsPods && errors.Is(m.err, errNoCgroup) {
			warn = found.warnUsual
		}
		warn("%s is not enforced: %v", m.kind, m.err)
	}
	defer func() {
		if err != nil {
			_ = rec.Cgroup.Remove(ctx)
		}
	}()
	if err := s.letReach(&rec); err != nil {
		found.warn("user %d may not be able to use its volumes: %v", user.UID, err)
	}
	rec.Spec = s.specOf(&rec, pod, home, env, found)
	rec.Warnings = found.warnings

	dir := s.containerDir(rec.ID)
	if err := os.MkdirAll(dir, 0o700); err == nil {
		if err = supervise.WriteFile(filepath.Join(dir, recordFile), &rec); err != nil { // watch syncs it
			_ = os.RemoveAll(dir)
			return nil, status.Errorf(codes.Internal, "container %s: recording it: %v", title, err)
		}
	} else {
		return nil, status.Errorf(codes.Internal, "container %s: %v", title, err)
	}
	c := newContainer(rec, dir)
	if err := s.addContainer(b, c); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	s.warn(found, "container", title)
	return &criv1.CreateContainerResponse{ContainerId: rec.ID}, nil
}

// addContainer adds a container to the server. It fails if the sandbox is stopped or
// removed, or has another container with this name and attempt.
func (s *Server) addContainer(b *sandbox, c *container) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b.mu.Lock()
	closed := b.removed || b.rec.Stopped
	b.mu.Unlock()
	if closed {
		return status.Errorf(codes.FailedPrecondition, "%s: sandbox %s is stopped", c.about(), b.rec.ID)
	}
	for _, other := range b.containers {
		m, o := c.rec.Config.GetMetadata(), other.rec.Config.GetMetadata()
		if m.GetName() == o.GetName() && m.GetAttempt() == o.GetAttempt() {
			return status.Errorf(codes.AlreadyExists, "%s: attempt %d of it exists: %s", c.about(),
				m.GetAttempt(), other.rec.ID)
		}
	}
	s.containers[c.rec.ID], b.containers[c.rec.ID] = c, c
	s.publishLocked(c.rec.ID, criv1.ContainerEventType_CONTAINER_CREATED_EVENT, b)
	return nil
}

// specOf returns the spec for the supervisor.
func (s *Server) specOf(rec *containerRecord, pod *criv1.PodSandboxConfig, home string, extra []string,
	found *findings) *supervise.Spec {
	config := rec.Config
	hostname := pod.GetHostname()
	if hostname == "" {
		hostname, _ = os.Hostname()
	}
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	env := environment{at: map[string]int{}}
	env.set("PATH", path)
	env.set("HOSTNAME", hostname)
	env.set("HOME", home)
	if config.GetTty() {
		env.set("TERM", "xterm")
	}
	for _, kv := range extra {
		name, value, _ := strings.Cut(kv, "=")
		env.set(name, value)
	}
	for _, kv := range config.GetEnvs() {
		env.set(kv.GetKey(), string(kv.GetValue()))
	}
	env.set(supervise.MarkerEnv, rec.ID)
	env.set(supervise.KeyEnv, newID())
	spec := &supervise.Spec{
		ID: rec.ID, Args: slices.Concat(config.GetCommand(), config.GetArgs()), Env: env.list,
		Dir: config.GetWorkingDir(), LogPath: rec.LogPath, LogLimit: s.logLimit(), Cgroup: rec.Cgroup,
		CgroupMounts: s.cgroups.mountsOf(rec.Cgroup),
		NoNewPrivs:   config.GetLinux().GetSecurityContext().GetNoNewPrivs(),
		Stdin:        config.GetStdin(), StdinOnce: config.GetStdinOnce(), TTY: config.GetTty(),
	}
	if spec.Dir == "" {
		spec.Dir = "/"
	}
	if s.host.root() {
		spec.User = &rec.User // without root it is the server's own and may not be set
	}
	if own, err := supervise.OOMScoreAdj("self"); err == nil {
		var lower bool
		adj := int(config.GetLinux().GetResources().GetOomScoreAdj())
		if spec.OOMScoreAdj, lower = oomScoreOf(adj, own, s.host.root()); lower {
			found.warn("the OOM score cannot be lowered by an agent that does not run as root")
		}
	}
	return spec
}

// oomScoreOf returns the score to set for a container that has adj in a server that has own; nil if
// the container inherits that of the server. lower is true if it would have to be lowered, which only
// root may. A container without a score inherits one above 0, but not the protection of the agent.
func oomScoreOf(adj, own int, root bool) (set *int, lower bool) {
	adj = max(-1000, min(adj, 1000)) // the range of proc_pid_oom_score_adj(5)
	switch {
	case adj == 0 && own >= 0:
		return nil, false
	case adj < own && !root:
		return nil, true
	}
	return &adj, false
}

// environment is a list of "name=value". Each name is in it once.
type environment struct {
	list []string
	at   map[string]int // the places of the names; a container can have a million
}

func (e *environment) set(name, value string) {
	kv := name + "=" + value
	name, _, _ = strings.Cut(kv, "=") // the name of a client may have this character
	if at, there := e.at[name]; there {
		e.list[at] = kv
		return
	}
	e.at[name] = len(e.list)
	e.list = append(e.list, kv)
}

// StartContainer implements CRI. If it returns nil, the command was executed.
func (s *runtimeService) StartContainer(ctx context.Context,
	req *criv1.StartContainerRequest) (*criv1.StartContainerResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := c.acquire(ctx); err != nil {
		return nil, err
	}
	defer c.release()
	b, err := s.sandbox(c.rec.SandboxID)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	st := c.state
	c.mu.Unlock()
	switch {
	case b.state() != criv1.PodSandboxState_SANDBOX_READY:
		return nil, status.Errorf(codes.FailedPrecondition, "%s: sandbox %s is stopped", c.about(), b.rec.ID)
	case st != criv1.ContainerState_CONTAINER_CREATED:
		return nil, status.Errorf(codes.FailedPrecondition, "%s: it was started before, and is %s now", c.about(),
			stateName(st))
	}
	state, err := supervise.Start(s.life, s.opts.Supervisor, c.dir, c.rec.Title)
	if err != nil && s.life.Err() != nil {
		// The supervisor continues. The next server finds out whether the command runs.
		return nil, status.Errorf(codes.Unavailable, "%s: the runtime is shutting down", c.about())
	}
	if err != nil {
		s.notStarted(c, err)
		s.syncRecords(c)
		s.publish(c.rec.ID, criv1.ContainerEventType_CONTAINER_STOPPED_EVENT, b)
		return nil, status.Errorf(codes.Internal, "%s: %v", c.about(), err)
	}
	s.started(c, state)
	s.publish(c.rec.ID, criv1.ContainerEventType_CONTAINER_STARTED_EVENT, b)
	s.tasks.Go(func() { s.watch(c) })
	return &criv1.StartContainerResponse{}, nil
}

func (s *Server) started(c *container, state supervise.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state, c.process, c.started = criv1.ContainerState_CONTAINER_RUNNING, state, state.StartedAt
}

// StopContainer implements CRI. It succeeds if the container does not run or does not
// exist.
func (s *runtimeService) StopContainer(ctx context.Context,
	req *criv1.StopContainerRequest) (*criv1.StopContainerResponse, error) {
	c, err := s.container(req.GetContainerId())
	return &criv1.StopContainerResponse{}, ifFound(c, err,
		func(c *container) error { return s.stop(ctx, c, podspec.Seconds(req.GetTimeout())) })
}

// RemoveContainer implements CRI. It kills the container first if it runs. It succeeds if
// the container does not exist.
func (s *runtimeService) RemoveContainer(ctx context.Context,
	req *criv1.RemoveContainerRequest) (*criv1.RemoveContainerResponse, error) {
	c, err := s.container(req.GetContainerId())
	return &criv1.RemoveContainerResponse{}, ifFound(c, err, func(c *container) error { return s.remove(ctx, c) })
}

func (s *Server) remove(ctx context.Context, c *container) error {
	if err := s.stop(ctx, c, 0); err != nil {
		return err
	}
	if err := c.acquire(ctx); err != nil {
		return err
	}
	defer c.release()
	c.mu.Lock()
	running := c.state == criv1.ContainerState_CONTAINER_RUNNING
	if !running {
		c.state = criv1.ContainerState_CONTAINER_EXITED // so that it is not started any more
	}
	c.mu.Unlock()
	if running {
		return status.Errorf(codes.Unavailable, "%s: it was started while it was being removed", c.about())
	}
	if err := c.rec.Cgroup.Remove(ctx); err != nil {
		s.opts.Logger.Error(err, "Cannot remove a container's cgroup", "container", c.rec.Title)
	}
	// The record is removed first: a directory without it is not a container.
	if err := os.Remove(filepath.Join(c.dir, recordFile)); err != nil && !os.IsNotExist(err) {
		return status.Errorf(codes.Internal, "%s: %v", c.about(), err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return status.Errorf(codes.Internal, "%s: %v", c.about(), err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.containers[c.rec.ID]; ok {
		b := s.sandboxes[c.rec.SandboxID] // which has containers, so it is there
		delete(s.containers, c.rec.ID)
		delete(b.containers, c.rec.ID)
		s.publishLocked(c.rec.ID, criv1.ContainerEventType_CONTAINER_DELETED_EVENT, b)
	}
	return nil
}

// ReopenContainerLog implements CRI.
func (s *runtimeService) ReopenContainerLog(ctx context.Context,
	req *criv1.ReopenContainerLogRequest) (*criv1.ReopenContainerLogResponse, error) {
	c, err := s.running(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := supervise.Call(ctx, c.dir, supervise.Request{Op: supervise.OpReopen}, supervisorPatience); err != nil {
		if !errors.As(err, new(supervise.AnswerError)) {
			// the supervisor ends with its container, which is noticed soon
			if ended, err := c.await(ctx, supervisorPatience); err != nil {
				return nil, err
			} else if ended {
				return nil, status.Errorf(codes.FailedPrecondition, "%s: it has ended", c.about())
			}
		}
		return nil, status.Errorf(codes.Internal, "%s: reopening its log: %v", c.about(), err)
	}
	return &criv1.ReopenContainerLogResponse{}, nil
}

// logLimit is that of a container that is created.
func (s *Server) logLimit() supervise.LogLimit {
	if s.opts.LogMaxSize == 0 {
		return supervise.LogLimit{}
	}
	return supervise.LogLimit{MaxSize: s.opts.LogMaxSize, MaxFiles: s.opts.LogMaxFiles}
}

// limitLog gives a container of an earlier server the limit of this one, if there is one. A supervisor of an earlier
// version refuses; package logs then rotates the log.
func (s *Server) limitLog(c *container) {
	if s.opts.LogMaxSize == 0 {
		return
	}
	req := supervise.Request{Op: supervise.OpLimitLog, LogLimit: s.logLimit()}
	if err := supervise.Call(s.life, c.dir, req, supervisorPatience); err != nil {
		s.opts.Logger.V(1).Info("A supervisor has no limit of the log", "container", c.rec.Title, "err", err.Error())
	}
}

// running returns the container if it runs.
func (s *Server) running(id string) (*container, error) {
	c, err := s.container(id)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != criv1.ContainerState_CONTAINER_RUNNING {
		return nil, status.Errorf(codes.FailedPrecondition, "%s: it is %s, not running", c.about(), stateName(c.state))
	}
	return c, nil
}
