package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// resourcesFile has the resources of a container after an update.
const resourcesFile = "resources.json"

// UpdateContainerResources implements CRI. It changes limits for which the container has
// cgroups, also while it runs. Otherwise it fails with FailedPrecondition and names each
// limit that did not change; the other limits may have changed until the next update. It
// does not change the OOM score and the limits of huge pages, like other runtimes.
func (s *runtimeService) UpdateContainerResources(_ context.Context,
	req *criv1.UpdateContainerResourcesRequest) (*criv1.UpdateContainerResourcesResponse, error) {
	c, err := s.container(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	c.updating.Lock()
	defer c.updating.Unlock()
	c.mu.Lock()
	ended, old := c.state == criv1.ContainerState_CONTAINER_EXITED, c.resources
	c.mu.Unlock()
	if ended {
		return nil, status.Errorf(codes.FailedPrecondition, "%s: it has ended", c.about())
	}
	merged := mergeResources(old, req.GetLinux())
	pids := s.pidsOfContainer(c)
	if refused := change(c.rec.Cgroup, limitsOf(old, pids), limitsOf(merged, pids)); refused != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "%s: %s", c.about(), refused)
	}
	if err := supervise.WriteFile(filepath.Join(c.dir, resourcesFile), merged); err != nil {
		return nil, status.Errorf(codes.Internal, "%s: recording its resources: %v", c.about(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resources = merged
	return &criv1.UpdateContainerResourcesResponse{}, nil
}

// change changes limits, and returns which ones cannot be changed, and why. Of those that were the same
// before, the warning was given when the container was created.
func change(c supervise.Cgroup, before, after []limit) string {
	var refused []string
	for _, m := range enforce(c, after) {
		same := slices.ContainsFunc(before, func(b limit) bool { return reflect.DeepEqual(b, m.limit) })
		if !same {
			refused = append(refused, fmt.Sprintf("%s cannot be changed: %v", m.kind, m.err))
		}
	}
	return strings.Join(refused, "; ")
}

// recoverResources reads the resources of the last update.
func (s *Server) recoverResources(c *container) {
	path := filepath.Join(c.dir, resourcesFile)
	updated := &criv1.LinuxContainerResources{}
	switch err := supervise.ReadFile(path, updated); {
	case err == nil:
		c.resources = updated
	case !errors.Is(err, fs.ErrNotExist):
		s.discard(path, err)
	}
}
