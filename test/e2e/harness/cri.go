package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels by which CRI objects say what pod and container they belong to.
const (
	labelPodName       = "io.kubernetes.pod.name"
	labelContainerName = "io.kubernetes.container.name"
)

// Client looks at a runtime through its CRI socket.
type Client struct {
	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient
	conn    *grpc.ClientConn
}

// Dial returns a client for the endpoint; it connects when it is used.
func Dial(endpoint string) (*Client, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return nil, err
	}
	return &Client{Runtime: cri.NewRuntimeServiceClient(conn), Images: cri.NewImageServiceClient(conn), conn: conn}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Ready returns nil when the runtime and its network are ready.
func (c *Client) Ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	// Without this the connection would sit out its own back-off after containerd
	// was away.
	c.conn.ResetConnectBackoff()
	resp, err := c.Runtime.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return err
	}
	for _, cond := range resp.Status.Conditions {
		if !cond.Status && (cond.Type == cri.RuntimeReady || cond.Type == cri.NetworkReady) {
			return fmt.Errorf("%s: %s", cond.Reason, cond.Message)
		}
	}
	return nil
}

// Pull pulls an image.
func (c *Client) Pull(image string) error {
	ctx, cancel := timeoutContext()
	defer cancel()
	_, err := c.Images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}})
	if err != nil {
		return fmt.Errorf("pulling %s: %w", image, err)
	}
	return nil
}

// Sandboxes returns the sandboxes of the pod of that full name, or of all pods
// with "", the newest first.
func (c *Client) Sandboxes(t testing.TB, pod string) []*cri.PodSandbox {
	t.Helper()
	ctx, cancel := timeoutContext()
	defer cancel()
	resp, err := c.Runtime.ListPodSandbox(ctx,
		&cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: podLabel(pod)}})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(resp.Items, func(a, b *cri.PodSandbox) int { return int(b.CreatedAt - a.CreatedAt) })
	return resp.Items
}

// Containers returns the containers of the pod of that full name, or of all
// pods with "", the newest first.
func (c *Client) Containers(t testing.TB, pod string) []*cri.Container {
	t.Helper()
	ctx, cancel := timeoutContext()
	defer cancel()
	resp, err := c.Runtime.ListContainers(ctx,
		&cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: podLabel(pod)}})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(resp.Containers, func(a, b *cri.Container) int { return int(b.CreatedAt - a.CreatedAt) })
	return resp.Containers
}

// Newest returns the newest instance of a container of the pod.
func (c *Client) Newest(t testing.TB, pod, container string) *cri.Container {
	t.Helper()
	for _, ctr := range c.Containers(t, pod) {
		if ctr.Labels[labelContainerName] == container {
			return ctr
		}
	}
	t.Fatalf("pod %s has no container %s in the runtime", pod, container)
	return nil
}

// LostTasks returns the containers of which containerd believes that they have no
// process, though they have: their start was cut off at one certain moment. It removes
// neither them nor their sandboxes before its next start (containerd#11037).
func (c *Client) LostTasks(t testing.TB) []string {
	t.Helper()
	ctx, cancel := timeoutContext()
	defer cancel()
	var lost []string
	for _, ctr := range c.Containers(t, "") {
		if ctr.State != cri.ContainerState_CONTAINER_EXITED {
			continue
		}
		resp, err := c.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: ctr.Id})
		if err == nil && strings.Contains(resp.Status.Message, "failed to get task pid") {
			lost = append(lost, ctr.Id)
		}
	}
	return lost
}

// PID returns the process ID, on the host, of the container's first process.
func (c *Client) PID(t testing.TB, id string) int {
	t.Helper()
	ctx, cancel := timeoutContext()
	defer cancel()
	resp, err := c.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(resp.Info["info"]), &info); err != nil || info.PID <= 1 {
		t.Fatalf("process of container %s: %v in %q (%v)", id, info.PID, resp.Info["info"], err)
	}
	return info.PID
}

// KillProcess kills the first process of the pod's newest such container, as if
// it had crashed, and returns the container's ID.
func (c *Client) KillProcess(t testing.TB, pod, container string) string {
	t.Helper()
	ctr := c.Newest(t, pod, container)
	if err := syscall.Kill(c.PID(t, ctr.Id), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return ctr.Id
}

// Exec runs a command in the pod's newest such container, and returns its output.
func (c *Client) Exec(t testing.TB, pod, container string, cmd ...string) string {
	t.Helper()
	out, err := c.TryExec(t, pod, container, cmd...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// End creates the file /end in the pod's newest such container, whose script ends when it sees the
// file. If the script ends first, the runtime kills the command that created the file: its exit
// code is 137.
func (c *Client) End(t testing.TB, pod, container string) {
	t.Helper()
	code, out, err := c.exec(t, pod, container, "touch", "/end")
	if err != nil || code != 0 && code != 137 {
		t.Fatalf("creating /end in pod %s: exit code %d, %q, %v", pod, code, out, err)
	}
}

// TryExec is Exec for commands that may fail.
func (c *Client) TryExec(t testing.TB, pod, container string, cmd ...string) (string, error) {
	t.Helper()
	code, out, err := c.exec(t, pod, container, cmd...)
	if err == nil && code != 0 {
		err = fmt.Errorf("%q in pod %s exited with %d: %s", cmd, pod, code, out)
	}
	return out, err
}

func (c *Client) exec(t testing.TB, pod, container string, cmd ...string) (code int32, out string, err error) {
	t.Helper()
	ctx, cancel := timeoutContext()
	defer cancel()
	resp, err := c.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: c.Newest(t, pod, container).Id,
		Cmd: cmd, Timeout: 30})
	if err != nil {
		return 0, "", err
	}
	return resp.ExitCode, string(resp.Stdout) + string(resp.Stderr), nil
}

// RemoveAll removes all sandboxes with their containers.
func (c *Client) RemoveAll() error {
	ctx, cancel := longTimeoutContext()
	defer cancel()
	resp, err := c.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	return inParallel(8, len(resp.Items), func(i int) error { return c.RemoveSandbox(ctx, resp.Items[i].Id) })
}

// RemoveSandbox stops and removes a sandbox with its containers, at once.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := c.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	_, err2 := c.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	return errors.Join(err, err2)
}

// Pod is a pod for the bare client.
type Pod struct {
	Sandbox    *cri.PodSandboxConfig
	Containers []*cri.ContainerConfig
}

// RunPod starts a pod by the calls that it takes at least, and returns the IDs of
// its sandbox and containers.
func (c *Client) RunPod(ctx context.Context, pod Pod) (sandbox string, containers []string, err error) {
	run, err := c.Runtime.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: pod.Sandbox})
	if err != nil {
		return "", nil, fmt.Errorf("sandbox %s: %w", pod.Sandbox.Metadata.Name, err)
	}
	for _, config := range pod.Containers {
		created, err := c.Runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
			PodSandboxId: run.PodSandboxId, Config: config, SandboxConfig: pod.Sandbox,
		})
		if err != nil {
			return run.PodSandboxId, containers, fmt.Errorf("container %s: %w", config.Metadata.Name, err)
		}
		if _, err := c.Runtime.StartContainer(ctx,
			&cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
			return run.PodSandboxId, containers, fmt.Errorf("container %s: %w", config.Metadata.Name, err)
		}
		containers = append(containers, created.ContainerId)
	}
	return run.PodSandboxId, containers, nil
}

// RunPods runs the pods, n at a time.
func (c *Client) RunPods(ctx context.Context, n int, pods []Pod) error {
	return inParallel(n, len(pods), func(i int) error {
		_, _, err := c.RunPod(ctx, pods[i])
		return err
	})
}

// podLabel selects what belongs to a pod.
func podLabel(pod string) map[string]string {
	if pod == "" {
		return nil
	}
	return map[string]string{labelPodName: pod}
}

// inParallel calls fn with 0 to count-1, n at a time, and joins the errors.
func inParallel(n, count int, fn func(i int) error) error {
	next, errs := make(chan int), make(chan error)
	for range n {
		go func() {
			var all error
			for i := range next {
				all = errors.Join(all, fn(i))
			}
			errs <- all
		}()
	}
	for i := range count {
		next <- i
	}
	close(next)
	var all error
	for range n {
		all = errors.Join(all, <-errs)
	}
	return all
}

// Configs returns the configurations that the newest sandbox of the pod and its
// containers were made with, as the runtime keeps them.
func (c *Client) Configs(t testing.TB, pod string) (*cri.PodSandboxConfig, []*cri.ContainerConfig) {
	t.Helper()
	ctx, cancel := timeoutContext()
	defer cancel()
	sandboxes := c.Sandboxes(t, pod)
	if len(sandboxes) == 0 {
		t.Fatalf("pod %s has no sandbox in the runtime", pod)
	}
	resp, err := c.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: sandboxes[0].Id,
		Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var sandbox struct{ Config *cri.PodSandboxConfig }
	if err := json.Unmarshal([]byte(resp.Info["info"]), &sandbox); err != nil || sandbox.Config == nil {
		t.Fatalf("configuration of the sandbox of %s: %v", pod, err)
	}
	var configs []*cri.ContainerConfig
	for _, ctr := range c.Containers(t, pod) {
		resp, err := c.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: ctr.Id, Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		var info struct{ Config *cri.ContainerConfig }
		if err := json.Unmarshal([]byte(resp.Info["info"]), &info); err != nil || info.Config == nil {
			t.Fatalf("configuration of container %s: %v", ctr.Id, err)
		}
		configs = append(configs, info.Config)
	}
	slices.Reverse(configs)
	return sandbox.Config, configs
}

// StopAll stops all containers with a grace period in seconds, all at once.
func (c *Client) StopAll(grace int64) error {
	ctx, cancel := longTimeoutContext()
	defer cancel()
	list, err := c.Runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	return inParallel(len(list.Containers), len(list.Containers), func(i int) error {
		_, err := c.Runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: list.Containers[i].Id,
			Timeout: grace})
		return err
	})
}

// EndAll stops all containers with a grace period in seconds, all at once, and
// removes them with their sandboxes.
func (c *Client) EndAll(grace int64) error {
	ctx, cancel := longTimeoutContext()
	defer cancel()
	sandboxes, err := c.Runtime.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	containers, err := c.Runtime.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	of := map[string][]string{}
	for _, ctr := range containers.Containers {
		of[ctr.PodSandboxId] = append(of[ctr.PodSandboxId], ctr.Id)
	}
	return inParallel(len(sandboxes.Items), len(sandboxes.Items), func(i int) error {
		id := sandboxes.Items[i].Id
		var errs []error
		for _, ctr := range of[id] {
			_, err := c.Runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: ctr, Timeout: grace})
			errs = append(errs, err)
		}
		return errors.Join(append(errs, c.RemoveSandbox(ctx, id))...)
	})
}
