//go:build linux

package process

import (
	"bytes"
	"context"
	"encoding/json"
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
		[]byte(`{"id":"`+id+`","sandboxID":"`+id+
			`","config":{"metadata":{"name":"c"},"envs":[null],"mounts":[null]},"title":"t"}`),
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
		if supervise.ReadFile(filepath.Join(path, recordFile), &rec) == nil && rec.ID == id &&
			rec.Config.GetMetadata() != nil && s.sandboxes[rec.SandboxID] != nil {
			c := newContainer(rec, path)
			s.containers[id], s.sandboxes[rec.SandboxID].containers[id] = c, c
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
	s, err := newServer(Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The records of links. Whatever they have, no file is removed that is not a link of the record, and a
// record that is not one is removed.
func FuzzLinkRecords(f *testing.F) {
	f.Add([]byte(`{"at":"LINK","to":"/v","sandboxID":"s","podUID":"u"}`), true)
	f.Add([]byte(`{"at":"LINK","to":"/elsewhere"}`), true)
	f.Add([]byte(`{"at":"KEPT","to":""}`), false)
	f.Add([]byte(`[]`), false)
	f.Fuzz(func(t *testing.T, data []byte, ofLink bool) {
		dir := t.TempDir()
		s := newTestServer(t, filepath.Join(dir, "state"))
		link, kept := filepath.Join(dir, "link"), filepath.Join(dir, "kept")
		data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("LINK"), []byte(link)), []byte("KEPT"), []byte(kept))
		name := s.linkFile(kept)
		if ofLink {
			name = s.linkFile(link)
		}
		for _, err := range []error{
			os.MkdirAll(s.linksDir(), 0o700), os.WriteFile(kept, nil, 0o600), os.Symlink("/v", link),
			os.WriteFile(name, data, 0o600),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		_ = s.recoverLinks()
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
		var rec linkRecord
		if _, err := os.Lstat(link); err != nil && (json.Unmarshal(data, &rec) != nil || rec.At != link ||
			rec.To != "/v") {
			t.Errorf("the link was removed because of %q", data)
		}
	})
}
