package cri

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/internal/underway"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri/internal/translate"
	"github.com/kubeletkit/kubeletkit/runtime/internal/crimeta"
	"github.com/kubeletkit/kubeletkit/runtime/plan"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Waiting reasons of containers with an image.
const (
	reasonCreateConfig  = "CreateContainerConfigError"
	reasonCreate        = "CreateContainerError"
	reasonRun           = "RunContainerError"
	reasonPostStartHook = "PostStartHookError"
)

// startContainer creates a container and starts it. Its error is a *waitError.
func (s *podSync) startContainer(ctx context.Context, st *plan.Start) error {
	c := st.Container
	events := s.containerEvents(c.Name)
	fail := func(why string, err error) error {
		if wait := waits(err); wait != nil {
			return &waitError{reason: wait.Reason, message: wait.Message, err: err}
		}
		events.failure(ctx, "Failed", "Error: "+reason(err))
		return waitFor(why, err)
	}
	image, err := s.images.get(ctx, keyOf(c.Image, c.ImagePullPolicy))
	if err != nil {
		events.failure(ctx, "Failed", "Error: "+waitReason(err))
		return err
	}
	mounted := map[string]*criv1.ImageSpec{}
	for _, v := range imageVolumes(s.Pod, c) {
		volume, err := s.images.get(ctx, keyOf(v.Image.Reference, v.Image.PullPolicy))
		if err != nil {
			events.failure(ctx, "Failed", "Error: "+waitReason(err))
			return err
		}
		mounted[v.Name] = &criv1.ImageSpec{Image: volume.Ref, UserSpecifiedImage: v.Image.Reference,
			Annotations: s.config.GetAnnotations()}
	}
	config, err := s.containerConfig(ctx, st, image, mounted)
	if err != nil {
		if cause := translate.Hidden(err); cause != nil {
			s.r.opts.Logger.Error(cause, "Container cannot be prepared", "pod", s.ref, "container", c.Name)
		}
		return fail(reasonCreateConfig, err)
	}

	about := s.aboutContainer(c.Name)
	leave, err := s.r.starts.enter(ctx, first, step{1, maxPlace})
	if err != nil {
		return fail(reasonCreate, err)
	}
	defer leave()
	s.changed = true
	longer, stop := linger(ctx)
	defer stop()
	created, err := call(longer, s.r, "CreateContainer", about, 0, s.r.rs.CreateContainer,
		&criv1.CreateContainerRequest{PodSandboxId: s.sandboxID, Config: config, SandboxConfig: s.config})
	if err = checkID("CreateContainer", about, created.GetContainerId(), err); err != nil {
		s.r.index.doubt(s.ref.UID)
		removeTerminationLog(c.Name, c.TerminationMessagePath, config.GetMounts())
		return fail(reasonCreate, err)
	}
	id := created.GetContainerId()
	s.r.index.addContainer(s.ref.UID, id, c.Name, s.sandboxID)
	events.normal("Created", "Container created")
	hooked := c.Lifecycle != nil && c.Lifecycle.PostStart != nil
	if hooked {
		s.r.recordHook(s.Dir, postStartOwed, c.Name, id)
	}

	// If this fails the container is kept, as in kubelet: its status has the reason, and
	// the failure counts as a crash.
	if _, err := call(longer, s.r, "StartContainer", about, 0, s.r.rs.StartContainer,
		&criv1.StartContainerRequest{ContainerId: id}); err != nil {
		// Runtimes repeat the ID in messages. The name replaces it, so that equal events
		// can be counted.
		events.failure(ctx, "Failed", "Error: "+withName(reason(err), id, c.Name))
		return waitFor(reasonRun, err)
	}
	leave() // hooks do not occupy a place
	events.normal("Started", "Container started")
	s.linkLog(config, id)

	if !hooked {
		return nil
	}
	return s.postStart(longer, c, about, id)
}

// postStart runs the hook, and stops the container if it fails. Its error is a *waitError.
func (s *podSync) postStart(ctx context.Context, c *v1.Container, about, id string) error {
	// The hook is not run again by this Runtime: if it is cut off, the pod is being stopped,
	// or the agent stops.
	s.r.pods.with(s.ref.UID, func(p *podMemory) { p.postStarted[id] = true })
	events, began := s.containerEvents(c.Name), time.Now()
	call := underway.Begin(ctx, c.Name, "postStart hook of container", c.Name)
	defer call.End()
	err := s.r.runHook(call, &hook{
		about: about, container: id, handler: c.Lifecycle.PostStart, ports: c.Ports,
		host: hookHost(s.Pod, s.ips, s.Host), events: s.events(),
	})
	if err != nil && ctx.Err() != nil { // it was cut off, and so would be a stop
		s.r.opts.Logger.Info("postStart hook was cut off, as the agent stops or the pod is removed; the next agent "+
			"runs it again", "pod", s.ref, "container", c.Name)
		return waitFor(reasonPostStartHook, fmt.Errorf("postStart hook: %w", err))
	}
	dropHook(s.Dir, postStartOwed, c.Name)
	events.done(ctx, runtime.Record{Kind: runtime.KindPostStart, Error: hookFailure(err)}, began, err)
	if err == nil {
		return nil
	}
	message := hookMessage(c.Lifecycle.PostStart, s.ref, c.Name, err)
	err = fmt.Errorf("postStart hook: %w", err)
	// The output of the hook may be secret: it is in the status, but not in the event.
	events.logged("FailedPostStartHook", "PostStartHook failed")
	events.decided(runtime.Record{Kind: runtime.KindStopContainer, Reason: reasonPostStartHook,
		Duration: podspec.Seconds(podspec.GracePeriod(s.Pod))})
	stopErr := s.r.stopContainer(ctx, &containerStop{
		ref: s.ref, pod: s.Pod, status: s.Status, dir: s.Dir, events: events,
		container: &runtime.ContainerStatus{Container: runtime.Container{ID: runtime.ContainerID{ID: id},
			Name: c.Name}},
		grace: podspec.GracePeriod(s.Pod), began: time.Now(), message: "FailedPostStartHook",
	})
	return &waitError{reason: reasonPostStartHook, message: message, err: errors.Join(err, stopErr)}
}

// finishPostStarts runs the postStart hooks that an earlier agent could not finish, one
// after the other.
func (s *podSync) finishPostStarts(ctx context.Context, acts plan.Actions) error {
	var errs []error
	for _, c := range podspec.Containers(&s.Pod.Spec) {
		if c.Lifecycle == nil || c.Lifecycle.PostStart == nil || acts.KillPod || ctx.Err() != nil {
			continue
		}
		n := s.Status.Newest(c.Name)
		if n == nil || n.State != runtime.ContainerRunning ||
			slices.ContainsFunc(acts.Kill, func(k plan.Kill) bool { return k.Container.ID == n.ID }) {
			continue
		}
		id, looked := n.ID.ID, false
		s.r.pods.with(s.ref.UID, func(p *podMemory) { looked, p.postStarted[id] = p.postStarted[id], true })
		if looked || !hookRecorded(s.Dir, postStartOwed, c.Name, id) {
			continue
		}
		s.r.opts.Logger.Info("Running the postStart hook that was cut off when the last agent ended", "pod", s.ref,
			"container", c.Name)
		s.changed, s.ips = true, s.Status.IPs
		longer, stop := linger(ctx)
		err := s.postStart(longer, c, s.about+", container "+c.Name, id)
		stop()
		var w *waitError
		if errors.As(err, &w) && ctx.Err() == nil {
			s.wait(c.Name, v1.ContainerStateWaiting{Reason: w.reason, Message: w.message}, w.retryAfter)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s, container %s: %w", s.about, c.Name, err))
		}
	}
	return errors.Join(errs...)
}

// containerConfig returns the configuration of the container's next instance, and writes
// the files that it mounts.
func (s *podSync) containerConfig(ctx context.Context, st *plan.Start, image translate.Image,
	mounted map[string]*criv1.ImageSpec) (*criv1.ContainerConfig, error) {
	c := st.Container
	logDir := filepath.Join(s.config.GetLogDirectory(), c.Name)
	if err := os.MkdirAll(logDir, 0o755); err != nil {
		return nil, fmt.Errorf("making its log directory: %w", err)
	}
	in := &translate.Container{
		Pod: s.pod, Spec: c, Kind: st.Kind, RestartCount: st.RestartCount, Backoff: st.Backoff,
		PodIPs: s.ips, Image: image, Volumes: s.Volumes, SubPath: s.SubPath,
		ImageVolumes: mounted, Objects: s.Objects,
	}
	if s.EditContainer != nil {
		var err error
		if in.Edits, err = s.EditContainer(ctx, c); err != nil {
			return nil, err
		}
	}
	if in.RestartCount == 0 {
		// The runtime has no instance, but may have lost its state: old logs are kept.
		names, err := fileNames(logDir)
		if err != nil {
			return nil, fmt.Errorf("reading its log directory: %w", err)
		}
		in.RestartCount = crimeta.NextRestartCount(names)
	}
	if st.Target != "" {
		target := s.Status.Newest(st.Target)
		if target == nil || target.State != runtime.ContainerRunning {
			return nil, fmt.Errorf("target container %q is not running", st.Target)
		}
		in.TargetID = target.ID.ID
	}
	var err error
	if wantsDeepReadOnly(c) {
		if in.RecursiveReadOnly, err = s.r.canMountReadOnlyDeep(ctx, s.handler); err != nil {
			return nil, err
		}
	}
	if err := s.checkMountOptions(ctx, c); err != nil {
		return nil, err
	}
	if s.Dir != "" {
		if err := os.MkdirAll(s.Dir, 0o750); err != nil {
			return nil, fmt.Errorf("making the pod's directory: %w", err)
		}
		if translate.NeedsHostsFile(in) {
			if in.HostsPath, err = s.hostsFile(); err != nil {
				return nil, fmt.Errorf("writing its hosts file: %w", err)
			}
		}
		if c.TerminationMessagePath != "" {
			if in.TerminationLogPath, err = makeTerminationLog(s.Dir, c.Name); err != nil {
				return nil, fmt.Errorf("making its termination log: %w", err)
			}
		}
	}
	return translate.ContainerConfig(ctx, in)
}

// wantsDeepReadOnly reports whether the container requests recursively read-only mounts.
func wantsDeepReadOnly(c *v1.Container) bool {
	for i := range c.VolumeMounts {
		if m := c.VolumeMounts[i].RecursiveReadOnly; m != nil && *m != v1.RecursiveReadOnlyDisabled {
			return true
		}
	}
	return false
}

// checkMountOptions returns an error if a mount requests options that the runtime would ignore: a volume that is to be
// noexec is not mounted without it.
func (s *podSync) checkMountOptions(ctx context.Context, c *v1.Container) error {
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if len(m.BindMountOptions) == 0 {
			continue
		}
		if err := s.r.learnOnce(ctx); err != nil {
			return err
		}
		if !s.r.mountOptions.Load() {
			return fmt.Errorf("volumeMount %q: the runtime does not support bindMountOptions %s", m.Name,
				strings.Join(m.BindMountOptions, ","))
		}
	}
	return nil
}

// maxNodeHosts is the limit for the hosts file of the node, in bytes.
const maxNodeHosts = 16 << 20

// hostsFile writes the pod's hosts file, once in a sync, and returns its path. Running
// containers have it mounted, so it is written in place, and only if it differs.
func (s *podSync) hostsFile() (string, error) {
	if s.hosts != "" {
		return s.hosts, nil
	}
	var nodeHosts []byte
	if podspec.HasHostNetwork(s.Pod) {
		var err error
		if nodeHosts, err = safefile.ReadFile("/etc/hosts", maxNodeHosts); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	content, err := translate.HostsFile(s.pod, s.ips, nodeHosts)
	if err != nil {
		return "", err
	}
	path := filepath.Join(s.Dir, "etc-hosts")
	if err := writeIfDifferent(path, content); err != nil {
		return "", err
	}
	s.hosts = path
	return path, nil
}

// writeIfDifferent gives the file the content. Containers may have changed the content of
// the file, so no more of it is read than is needed to compare it.
func writeIfDifferent(path string, content []byte) (err error) {
	f, err := safefile.OpenReadWrite(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	old := make([]byte, len(content)+1)
	n, err := f.ReadAt(old, 0)
	if errors.Is(err, io.EOF) && bytes.Equal(old[:n], content) {
		return nil
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	return f.Chmod(0o644) // the umask of this process does not apply
}

// terminationLogPrefix is the prefix of the files of makeTerminationLog.
const terminationLogPrefix = "termination-log."

// makeTerminationLog creates the file for the termination message of one container
// instance. Unlike kubelet's it is in the pod's directory itself: an additional directory
// would cost a start as much as a file.
func makeTerminationLog(podDir, container string) (string, error) {
	var unique [4]byte
	if _, err := rand.Read(unique[:]); err != nil {
		return "", err
	}
	path := filepath.Join(podDir, terminationLogPrefix+container+"."+hex.EncodeToString(unique[:]))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	// The container may run as any user.
	return path, errors.Join(f.Chmod(0o666), f.Close())
}

// removeTerminationLog removes the file of makeTerminationLog that is mounted at the
// message path of an instance, if there is one: a crash loop creates one with every
// restart. Errors are ignored, since the file is removed with the pod, as in kubelet.
func removeTerminationLog(container, messagePath string, mounts []*criv1.Mount) {
	if path := terminationLog(container, messagePath, mounts); isTerminationLog(container, path) {
		_ = os.Remove(path)
	}
}

func fileNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// startFailure returns the error of a start for its record, "" if there was none. The text
// leaves out what another record has, and the output of a hook, which may be secret.
func startFailure(w *waitError) string {
	if w == nil {
		return ""
	}
	switch w.reason {
	case reasonCreateConfig, reasonCreate, reasonRun:
		return w.reason + ": " + w.message
	default:
		return w.reason
	}
}

// waitReason returns the waiting reason in an error, or else its text.
func waitReason(err error) string {
	var w *waitError
	if errors.As(err, &w) {
		return w.reason
	}
	return reason(err)
}
