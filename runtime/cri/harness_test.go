package cri_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/cri"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service is a CRI service whose calls a test looks at. It streams no lists.
type service struct {
	*fake.Runtime
	t *testing.T
	// start is what the times of calls are counted from.
	start time.Time
	// ips are the addresses of the next sandboxes.
	ips []string
}

// newService returns a service that has the images.
func newService(t *testing.T, images ...string) *service {
	s := &service{t: t, start: time.Now(), ips: []string{"10.0.0.7", "fd00::7"}}
	s.Runtime = fake.New(fake.Options{
		Images: images, Without: fake.ListStreams(),
		PodIPs: func(runtime.PodRef) []string { return s.ips },
	})
	return s
}

// client returns a client of the service that has made no call yet.
func (s *service) client(opts cri.Options) *cri.Runtime {
	rs, is := s.Clients()
	return cri.New(rs, is, opts)
}

// calls returns and forgets the calls made so far, each as its method and what it is
// about, behind the time that has passed since start if that is a second or more.
// Calls that only read are left out unless all is set, and those that it does not
// have always.
func (s *service) calls(all ...bool) []string {
	var lines []string
	for _, c := range s.Calls(fake.Target{}) {
		if len(all) == 0 && !c.Changes() || strings.HasPrefix(c.Method, "Stream") {
			continue
		}
		line := strings.TrimSpace(c.Method + " " + s.about(c))
		if d := c.Began.Sub(s.start); d >= time.Second {
			line = fmt.Sprintf("%s %s", d.Truncate(time.Millisecond), line)
		}
		lines = append(lines, line)
	}
	s.ForgetCalls()
	return lines
}

func (s *service) about(c fake.Call) string {
	switch c.Method {
	case "RunPodSandbox":
		return fmt.Sprintf("%s/%d", c.Pod.Name, c.Attempt)
	case "CreateContainer":
		return fmt.Sprintf("%s/%d", c.Container, c.Attempt)
	case "StartContainer":
		return c.Container
	case "StopContainer":
		return fmt.Sprintf("%s %d", c.Container, c.Grace/time.Second)
	case "ExecSync":
		return strings.Join(c.Command, " ")
	case "ImageStatus", "PullImage":
		return strings.TrimSpace(s.nameOf(c.ID) + " " + c.Username)
	default:
		return c.ID
	}
}

// nameOf returns the reference of an image, with the name in an ID instead of the
// hash of it.
func (s *service) nameOf(ref string) string {
	if !strings.HasPrefix(ref, "sha256:") {
		return ref
	}
	_, is := s.Clients()
	resp, err := is.ImageStatus(s.t.Context(), &criv1.ImageStatusRequest{Image: &criv1.ImageSpec{Image: ref}})
	require.NoError(s.t, err)
	return "sha256:" + resp.GetImage().GetRepoTags()[0]
}

// newest returns the newest instance of the container, nil if there is none.
func (s *service) newest(name string) *fake.Instance {
	all := s.Instances(fake.Target{Container: name})
	if len(all) == 0 {
		return nil
	}
	return &all[len(all)-1]
}

// status returns what the service says of the newest instance of the container.
func (s *service) status(name string) *criv1.ContainerStatus {
	s.t.Helper()
	rs, _ := s.Clients()
	resp, err := rs.ContainerStatus(s.t.Context(), &criv1.ContainerStatusRequest{ContainerId: s.newest(name).ID.ID})
	require.NoError(s.t, err)
	return resp.GetStatus()
}

// exit ends the newest instance of the container.
func (s *service) exit(name string, code int32) {
	s.t.Helper()
	require.Equal(s.t, 1, s.Exit(fake.Target{Container: name}, code))
}

// answer makes commands in containers that start from now on have the result.
func (s *service) answer(res runtime.ExecResult) {
	s.Script(fake.Target{},
		fake.Behavior{Exec: func(context.Context, []string) (runtime.ExecResult, error) { return res, nil }})
}

// podOf returns a pod of the named containers, all of image "app:1".
func podOf(names ...string) *v1.Pod {
	return testpod.New("web", testpod.UID("uid-1"), testpod.Restart(v1.RestartPolicyAlways), testpod.Grace(30),
		func(pod *v1.Pod) {
			pod.Spec.DNSPolicy, pod.Spec.SecurityContext = v1.DNSDefault, &v1.PodSecurityContext{}
			for _, name := range names {
				pod.Spec.Containers = append(pod.Spec.Containers, containerNamed(name))
			}
		})
}

func containerNamed(name string) v1.Container {
	return v1.Container{
		Name: name, Image: "app:1", ImagePullPolicy: v1.PullIfNotPresent,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
	}
}

// syncer syncs one pod as an agent does: each time from a fresh status.
type syncer struct {
	t    *testing.T
	rt   *cri.Runtime
	pod  *v1.Pod
	dir  string
	more func(*runtime.PodSync)
	// events has the events of sync.
	events fake.Recorder
}

func newSyncer(t *testing.T, rt *cri.Runtime, pod *v1.Pod) *syncer {
	return &syncer{t: t, rt: rt, pod: pod, dir: t.TempDir()}
}

// running brings a pod up and forgets the calls.
func running(t *testing.T, svc *service, pod *v1.Pod) *syncer {
	t.Helper()
	s := newSyncer(t, svc.client(cri.Options{}), pod)
	for range len(pod.Spec.InitContainers) + 1 {
		s.mustSync()
	}
	svc.calls()
	svc.start = time.Now()
	return s
}

func (s *syncer) status() *runtime.PodStatus {
	s.t.Helper()
	st, err := s.rt.InspectPod(s.t.Context(), runtime.RefOf(s.pod))
	require.NoError(s.t, err)
	return st
}

func (s *syncer) request() runtime.PodSync {
	req := runtime.PodSync{
		Pod: s.pod, Status: s.status(), Dir: filepath.Join(s.dir, "pod"), Event: s.events.Event,
		Host: &runtime.Host{NodeName: "n1", Hostname: "n1", IPs: []string{"192.0.2.1"},
			PodLogsDir: filepath.Join(s.dir, "logs")},
	}
	if s.more != nil {
		s.more(&req)
	}
	return req
}

func (s *syncer) sync() (runtime.SyncResult, error) {
	s.t.Helper()
	return s.rt.SyncPod(s.t.Context(), s.request())
}

func (s *syncer) mustSync() runtime.SyncResult {
	s.t.Helper()
	res, err := s.sync()
	require.NoError(s.t, err)
	return res
}

// eventLines returns the events so far, each as its path, reason and message.
func (s *syncer) eventLines() []string {
	var lines []string
	for _, e := range s.events.Events(fake.Target{}) {
		lines = append(lines, strings.TrimSpace(e.FieldPath+" "+e.Reason+": "+e.Message))
	}
	return lines
}

func (s *syncer) kill() error {
	s.t.Helper()
	return s.rt.KillPod(s.t.Context(), runtime.PodKill{Pod: s.pod, Status: s.status()})
}

func (s *syncer) mustKill() {
	s.t.Helper()
	require.NoError(s.t, s.kill())
}
