//go:build linux

package process

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// The records of an earlier server, or what somebody has made of them.
func FuzzRecords(f *testing.F) {
	id := strings.Repeat("a", 64)
	f.Add([]byte(`{"id":"`+id+`","config":{"metadata":{"name":"p","uid":"u"}},"boot":"b"}`),
		[]byte(`{"id":"`+id+`","sandboxID":"`+id+`","config":{"metadata":{"name":"c"},"envs":[null],"mounts":[null]},"title":"t"}`),
		[]byte(`{"a":null,"b":{"removed":true}}`), []byte(`{"cpu_period":1}`))
	f.Fuzz(func(t *testing.T, sandboxFile, containerFile, imagesFile, resources []byte) {
		dir := t.TempDir()
		s := &runtimeService{Server: newTestServer(t, dir)}
		write := func(path string, data []byte) {
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(s.sandboxFile(id), sandboxFile)
		write(s.imagesFile(), imagesFile)
		ctx := context.Background()
		s.life = ctx
		s.ips = []string{"127.0.0.1"}
		if err := s.recoverImages(); err != nil {
			t.Fatal(err)
		}
		if err := s.recoverSandboxes(); err != nil {
			t.Fatal(err)
		}
		// Like recoverContainers, which looks for processes.
		path := s.containerDir(id)
		write(filepath.Join(path, recordFile), containerFile)
		write(filepath.Join(path, resourcesFile), resources)
		var rec containerRecord
		if supervise.ReadFile(filepath.Join(path, recordFile), &rec) == nil && rec.ID == id && rec.Config.GetMetadata() != nil && s.sandboxes[rec.SandboxID] != nil {
			c := newContainer(rec, path)
			s.containers[id] = c
			s.recoverResources(c)
		}
		is := &imageService{Server: s.Server}
		_, _ = is.ListImages(ctx, &criv1.ListImagesRequest{})
		_, _ = s.ListPodSandbox(ctx, &criv1.ListPodSandboxRequest{})
		_, _ = s.PodSandboxStatus(ctx, &criv1.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
		_, _ = s.ListContainers(ctx, &criv1.ListContainersRequest{Filter: &criv1.ContainerFilter{PodSandboxId: id}})
		_, _ = s.ContainerStatus(ctx, &criv1.ContainerStatusRequest{ContainerId: id, Verbose: true})
	})
}

func newTestServer(t *testing.T, dir string) *Server {
	t.Helper()
	s, err := New(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
