package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/control"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/terminal"
	"github.com/kubeletkit/kubeletkit/podconfig/manifest"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// restartCommand is the command restart.
func restartCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "restart POD", Short: "stop containers of a pod, and let them start again", GroupID: groupPods,
		Long: "Each container that runs gets its preStop hook, its stop signal and its grace period. Then the restart " +
			"policy starts it again, in the same pod: its volumes and addresses stay, and init containers do not run " +
			"again. A container that ends soon after its start waits for its back-off.\n" +
			"If the restart policy would not start a container again, the command changes nothing.",
		Example: "  minikubelet restart web\n  minikubelet restart web -c proxy",
	}, (*call).restart, (*call).namespaceFlag, func(c *call, fs *pflag.FlagSet) {
		fs.StringVarP(&c.container, "container", "c", "", "container of the pod (default: all that run)")
	})
}

// restart stops containers of a pod.
func (c *call) restart(ctx context.Context) error {
	if len(c.args) != 1 {
		return c.misused("want the name of one pod")
	}
	pod, err := c.podWithLogs(ctx, c.args[0], false)
	if err != nil {
		return err
	}
	if c.container != "" {
		if _, _, err := chooseContainer(pod, c.container); err != nil {
			return err
		}
	}
	list, notes, err := RestartOf(pod, c.container)
	if err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintln(c.Err, terminal.Escape(note))
	}
	ref, names := pod.Namespace+"/"+pod.Name, strings.Join(list, ", ")
	fmt.Fprintf(c.Err, "Stopping %s of pod %s, in up to %ds …\n", terminal.Escape(names), terminal.Escape(ref),
		podspec.GracePeriod(pod))
	query := url.Values{"container": list, "by": {"user " + UserName(os.Getuid())}}
	resp, err := c.client.do(ctx, http.MethodPost, control.RestartPath+url.PathEscape(string(pod.UID)), query)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	fmt.Fprintf(c.Out, "Stopped %s of pod %s; the restart policy starts what has ended.\n", terminal.Escape(names),
		terminal.Escape(ref))
	return nil
}

// RestartOf returns the containers of a pod that a restart stops: that of the name, or if it is "" all that run. The
// notes are sentences about those that do not start again in each case. The error is one of a pod with nothing to stop,
// or with a container that its restart policy would not start again.
func RestartOf(pod *v1.Pod, container string) (names, notes []string, err error) {
	ref := pod.Namespace + "/" + pod.Name
	for kind, spec := range podspec.Containers(&pod.Spec) {
		if container != "" && spec.Name != container || container == "" && !runs(pod, spec.Name) {
			continue
		}
		switch onSuccess := podspec.ShouldRestart(pod, spec, kind, 0); {
		case kind == podspec.EphemeralContainer && container == "":
			continue
		case !onSuccess && !podspec.ShouldRestart(pod, spec, kind, 1):
			return nil, nil, fmt.Errorf("the restart policy of container %s of pod %s would not start it again",
				spec.Name, ref)
		case !onSuccess:
			notes = append(notes, "Container "+spec.Name+" does not start again if it ends with exit code 0.")
		}
		names = append(names, spec.Name)
	}
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("no container of pod %s runs", ref)
	}
	return names, notes, nil
}

// UserName returns the name of a user, and its ID.
func UserName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username + " (UID " + id + ")"
	}
	return "of UID " + id
}

// runs reports whether the container runs.
func runs(pod *v1.Pod, container string) bool {
	for s := range podspec.Statuses(&pod.Status) {
		if s.Name == container {
			return s.State.Running != nil
		}
	}
	return false
}

// deleteCommand is the command delete.
func deleteCommand(e Env) *cobra.Command {
	return e.command(&cobra.Command{
		Use: "delete POD", Aliases: []string{"rm"}, Short: "say how a pod is deleted, and move its manifest away",
		GroupID: groupPods,
		Long: "A pod runs as long as its source has it. For a pod of a manifest, the command names the file, and with " +
			"--move-to moves it; then the pod ends in its grace period, and the command waits for that. For a pod of " +
			"another source it says where the pod is to be deleted.\n\n" +
			"The exit code is 1 if nothing was deleted.",
		Example: "  minikubelet delete web\n  minikubelet delete web --move-to /etc/kubernetes/off",
	}, (*call).delete, (*call).namespaceFlag, func(c *call, fs *pflag.FlagSet) {
		fs.StringVar(&c.moveTo, "move-to", "", "directory to which the manifest of the pod is moved")
	})
}

// delete moves the manifest of a pod away.
func (c *call) delete(ctx context.Context) error {
	if len(c.args) != 1 {
		return c.misused("want the name of one pod")
	}
	pod, err := c.podWithLogs(ctx, c.args[0], false)
	if err != nil {
		return err
	}
	ref := pod.Namespace + "/" + pod.Name
	switch source := pod.Annotations[podspec.AnnotationConfigSource]; source {
	case manifest.SourceFile:
	case podspec.SourceAPI:
		return fmt.Errorf("pod %s is of the API server; delete it there: kubectl delete pod -n %s %s", ref, pod.Namespace,
			pod.Name)
	default:
		return fmt.Errorf("pod %s is of source %q, which would bring it back; delete it there", ref, source)
	}
	from, err := c.manifestOf(ctx, pod)
	if err != nil {
		return err
	}
	if c.moveTo == "" {
		return fmt.Errorf("pod %s is of manifest %s, which would bring it back; --move-to DIR moves the manifest away "+
			"and so ends %s. To start its containers again: %s restart %s", ref, from.Path,
			strings.Join(from.Pods, ", "), c.Program, ref)
	}
	to := filepath.Join(c.moveTo, filepath.Base(from.Path))
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s exists already", to)
	}
	if same, _ := filepath.Abs(c.moveTo); same == filepath.Dir(from.Path) {
		return fmt.Errorf("%s is the directory of the manifests", c.moveTo)
	}
	if err := os.Rename(from.Path, to); err != nil {
		return fmt.Errorf("moving the manifest: %w", err)
	}
	fmt.Fprintf(c.Out, "Manifest %s is now %s. It ends, in up to %ds: %s\n", terminal.Escape(from.Path),
		terminal.Escape(to), podspec.GracePeriod(pod), terminal.Escape(strings.Join(from.Pods, ", ")))
	if err := c.awaitGone(ctx, pod); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "Pod %s is gone.\n", terminal.Escape(ref))
	return nil
}

// manifestOf returns the manifest of a pod.
func (c *call) manifestOf(ctx context.Context, pod *v1.Pod) (validated, error) {
	st, err := get[control.Status](ctx, c.client, control.StatusPath, nil, "states")
	if err != nil {
		return validated{}, err
	}
	v := validator{node: st.NodeName}
	v.path(ctx, st.Manifests)
	for _, found := range v.found {
		if slices.Contains(found.Pods, v.name(pod.Namespace, pod.Name)) {
			return found, nil
		}
	}
	return validated{}, fmt.Errorf("pod %s/%s is of a manifest, and no file of %s that can be used has it", pod.Namespace,
		pod.Name, st.Manifests)
}

// errGone ends a wait.
var errGone = errors.New("the pod is gone")

// awaitGone returns when the pod is gone from the node.
func (c *call) awaitGone(ctx context.Context, pod *v1.Pod) error {
	err := c.again(ctx, func() error {
		pods, err := c.client.pods(ctx)
		if err == nil && !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == pod.UID }) {
			err = errGone
		}
		return err
	})
	if errors.Is(err, errGone) {
		return nil
	}
	if err == nil { // a signal
		err = errors.New("interrupted; the pod goes on ending")
	}
	return err
}
