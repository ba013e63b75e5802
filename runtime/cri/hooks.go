package cri

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/internal/flow"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// maxHookBody is the number of bytes of a hook's response that are read, so that the
// connection is closed in order. 10 KiB, as in kubelet.
const maxHookBody = 10 << 10

// maxHookHeader is the limit for the headers of a hook's response, in bytes. With Go's
// default of 10 MB they could take hundreds of megabytes when they are parsed.
const maxHookHeader = 64 << 10

// maxHookOutput is the number of bytes of a failed command's output in its error, and in
// the status.
const maxHookOutput = 1 << 10

// hook is a lifecycle hook to run.
type hook struct {
	about     string
	container string // its ID
	handler   *v1.LifecycleHandler
	// ports of the container, by name.
	ports []v1.ContainerPort
	// host is the host of HTTP requests unless the hook has one; "" if unknown.
	host string
	// events emits events about the pod.
	events emitter
}

// runHook runs a hook until it or ctx ends. A tcpSocket hook is an error, as in kubelet
// (lifecycle/handlers.go): nothing implements it, and the API has it for old specs only.
func (r *Runtime) runHook(ctx context.Context, h *hook) error {
	switch {
	case h.handler.Exec != nil:
		return r.runExecHook(ctx, h)
	case h.handler.HTTPGet != nil:
		return r.runHTTPHook(ctx, h)
	case h.handler.Sleep != nil:
		if !flow.Sleep(ctx, podspec.Seconds(h.handler.Sleep.Seconds)) {
			return fmt.Errorf("sleep: %w", flow.Ended(ctx))
		}
		return nil
	case h.handler.TCPSocket != nil:
		return errors.New("invalid handler: no runtime can run a tcpSocket hook; use exec, httpGet or sleep")
	default:
		return errors.New("invalid handler: the hook has no action")
	}
}

func (r *Runtime) runExecHook(ctx context.Context, h *hook) error {
	resp, err := call(ctx, r, "ExecSync", h.about, -1, r.execSync,
		&criv1.ExecSyncRequest{ContainerId: h.container, Cmd: h.handler.Exec.Command})
	if err != nil {
		return fmt.Errorf("exec %q: %w", h.handler.Exec.Command, err)
	}
	if code := resp.GetExitCode(); code != 0 {
		return &hookExit{h.handler.Exec.Command, code, resp.GetStdout(), resp.GetStderr()}
	}
	return nil
}

// hookExit is the error of a command that has failed. The text is kubelet's, and has output.
type hookExit struct {
	command        []string
	code           int32
	stdout, stderr []byte
}

func (e *hookExit) Error() string {
	return fmt.Sprintf("command '%s' exited with %d: %s", strings.Join(e.command, " "), e.code,
		e.stderr[:min(len(e.stderr), maxHookOutput)])
}

// hookMessage returns kubelet's text about a hook that has failed, for the status of the
// container (kubelet: lifecycle/handlers.go, Run). It has output of the hook.
func hookMessage(handler *v1.LifecycleHandler, pod runtime.PodRef, container string, err error) string {
	var exit *hookExit
	var c *callError
	output, cause := "", err.Error()
	switch {
	case errors.As(err, &exit):
		all := append(slices.Clip(exit.stdout), exit.stderr...)
		output, cause = string(all[:min(len(all), maxHookOutput)]), exit.Error()
	case errors.As(err, &c):
		cause = c.message
	case errors.Unwrap(err) != nil: // without the kind of the hook
		cause = errors.Unwrap(err).Error()
	}
	where := fmt.Sprintf("for Container %q in Pod %q failed - error: %s", container, pod.FullName()+"("+
		string(pod.UID)+")", cause)
	switch {
	case handler.Exec != nil:
		return fmt.Sprintf("Exec lifecycle hook (%v) %s, message: %q", handler.Exec.Command, where, output)
	case handler.HTTPGet != nil:
		return fmt.Sprintf("HTTP lifecycle hook (%s) %s", handler.HTTPGet.Path, where)
	case handler.Sleep != nil:
		return fmt.Sprintf("Sleep lifecycle hook (%d) %s", handler.Sleep.Seconds, where)
	default:
		return "Cannot run handler: " + cause
	}
}

// hookFailure returns the error of a hook for its record, "" if it has not failed. The
// output of a hook and the address of a request may be secret, so the text has neither.
func hookFailure(err error) string {
	var exit *hookExit
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exit):
		return fmt.Sprintf("exit code %d", exit.code)
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not end in time"
	default:
		return "its error is in the log of the agent"
	}
}

// runHTTPHook makes a request. Any response is a success: by the API a hook fails only if
// there is no response.
func (r *Runtime) runHTTPHook(ctx context.Context, h *hook) error {
	target, err := hookURL(h)
	if err != nil {
		return fmt.Errorf("httpGet: %w", err)
	}
	transport := r.opts.transport
	if transport == nil {
		// Certificates of hooks are not verified (API reference, httpGet.scheme), no proxy is
		// used between a node and its pods, and connections are not reused.
		t := &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, //nolint:gosec // see above
			MaxResponseHeaderBytes: maxHookHeader,
		}
		defer t.CloseIdleConnections()
		transport = t
	}
	// A redirect is a response, and so a success. It is not followed: its target is chosen by
	// the container, and the request would carry the headers of the spec to it, from the
	// network of the node.
	client := &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	err = getHook(ctx, client, target, h.handler.HTTPGet)
	if errors.Is(err, http.ErrSchemeMismatch) && target.Scheme == "https" {
		// Old versions of kubelet ignored the scheme, and some specs rely on that.
		target.Scheme = "http"
		if err = getHook(ctx, client, target, h.handler.HTTPGet); err == nil {
			h.events.warning("LifecycleHTTPFallback",
				fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded",
					target.Host))
		}
	}
	if err != nil {
		return fmt.Errorf("httpGet: %w", err)
	}
	return nil
}

func getHook(ctx context.Context, client *http.Client, target *url.URL, get *v1.HTTPGetAction) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-lifecycle/kubeletkit")
	req.Header.Set("Accept", "*/*")
	seen := map[string]bool{}
	for _, kv := range get.HTTPHeaders {
		key := http.CanonicalHeaderKey(kv.Name)
		switch {
		case key == "Host" && !seen[key]:
			req.Host = kv.Value
		case key == "Host": // the first counts, as in kubelet
		case seen[key]:
			req.Header.Add(key, kv.Value)
		default:
			req.Header.Set(key, kv.Value)
		}
		seen[key] = true
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept")
	}
	if target.Scheme != strings.ToLower(string(get.Scheme)) && target.Scheme == "http" && get.Scheme != "" {
		req.Header.Del("Authorization") // it was meant to be encrypted
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxHookBody)
	return resp.Body.Close()
}

func hookURL(h *hook) (*url.URL, error) {
	get := h.handler.HTTPGet
	host := get.Host
	if host == "" {
		host = h.host
	}
	if host == "" {
		return nil, errors.New("the pod has no address")
	}
	port, err := hookPort(get.Port, h.ports)
	if err != nil {
		return nil, err
	}
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	// The path of a hook may hold a query.
	target, err := url.Parse(get.Path)
	if err != nil {
		target = &url.URL{Path: get.Path}
	}
	target.Scheme, target.Host = scheme, net.JoinHostPort(host, strconv.Itoa(port))
	if !strings.HasPrefix(target.Path, "/") {
		target.Path = "/" + target.Path
	}
	return target, nil
}

func hookPort(port intstr.IntOrString, ports []v1.ContainerPort) (int, error) {
	n := port.IntValue()
	if port.Type == intstr.String {
		for i := range ports {
			if ports[i].Name == port.StrVal {
				n = int(ports[i].ContainerPort)
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("port %s: neither a port number nor the name of a port of the container", port.String())
	}
	return n, nil
}

// hookHost returns the address of the pod for its node. All arguments may be nil.
func hookHost(pod *v1.Pod, ips []string, host *runtime.Host) string {
	switch {
	case len(ips) > 0:
		return ips[0]
	case pod == nil || !podspec.HasHostNetwork(pod):
		return ""
	case host != nil && len(host.IPs) > 0:
		return host.IPs[0]
	case pod.Status.HostIP != "":
		return pod.Status.HostIP
	default:
		return "127.0.0.1"
	}
}
