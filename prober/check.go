package prober

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/runtime"
)

const (
	// maxOutput is how much of a command's output or a response's body is read, in
	// bytes, as in kubelet.
	maxOutput = 10 << 10
	// maxRedirects is how many redirects are followed, as net/http does by itself.
	maxRedirects = 10
	// attempts is how often a check that could not be made is tried at once before it
	// is left to the next period, as in kubelet.
	attempts = 3
)

// checker makes the checks of probes.
type checker struct {
	exec      runtime.Execer
	userAgent string
	dialer    *net.Dialer
	transport *http.Transport
}

func newChecker(rt runtime.Execer, userAgent string) *checker {
	c := &checker{exec: rt, userAgent: userAgent, dialer: &net.Dialer{}}
	c.transport = &http.Transport{
		DialContext: c.dial,
		// The certificate says nothing about health (API reference, HTTPGetAction).
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2:  true,
		DisableKeepAlives:  true,
		DisableCompression: true, // sends no Accept-Encoding
	}
	return c
}

// dial connects such that the socket is in TIME_WAIT for one second at most: a
// node full of probes would run out of ports else.
func (c *checker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, network, address)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(1)
	}
	return conn, err
}

// target is what a check is made against.
type target struct {
	container *v1.Container
	probe     *v1.Probe
	id        runtime.ContainerID
	// host is the address of the pod, "" if it has none.
	host    string
	timeout time.Duration
}

var errNoAddress = errors.New("the pod has no address yet")

// check makes one check, and tells its outcome and what there is to say of it. An
// error says that it could not be made, which tells nothing about the container.
func (c *checker) check(ctx context.Context, t target) (success bool, output string, err error) {
	for range attempts {
		success, output, err = c.once(ctx, t)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return success, output, err
}

func (c *checker) once(ctx context.Context, t target) (bool, string, error) {
	switch p := t.probe; {
	case p.Exec != nil:
		return c.execute(ctx, t)
	case p.HTTPGet != nil:
		return c.httpGet(ctx, t)
	case p.TCPSocket != nil:
		return c.tcpSocket(ctx, t)
	case p.GRPC != nil:
		return c.grpc(ctx, t)
	default:
		return false, "", errors.New("the probe has no handler: set exec, httpGet, tcpSocket or grpc")
	}
}

func (c *checker) execute(ctx context.Context, t target) (bool, string, error) {
	res, err := c.exec.Exec(ctx, t.id, expandAll(t.probe.Exec.Command, t.container.Env), t.timeout)
	switch {
	case ctx.Err() != nil:
		return false, "", context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return false, fmt.Sprintf("command timed out after %v", t.timeout), nil
	case err != nil:
		return false, "", err
	}
	return res.ExitCode == 0, string(res.Output[:min(len(res.Output), maxOutput)]), nil
}

func (c *checker) httpGet(ctx context.Context, t target) (bool, string, error) {
	req, err := c.request(ctx, t)
	if err != nil {
		return false, "", err
	}
	client := &http.Client{Transport: c.transport, Timeout: t.timeout, CheckRedirect: sameHost}
	res, err := client.Do(req)
	if err != nil {
		return failed(ctx, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxOutput))
	switch {
	case err != nil:
		return failed(ctx, err)
	case res.StatusCode < 200 || res.StatusCode >= 400:
		// Without the body: the message is seen by more people than the pod's output.
		return false, fmt.Sprintf("HTTP probe failed with statuscode: %d", res.StatusCode), nil
	default:
		return true, string(body), nil
	}
}

// sameHost follows redirects on the same host. One to another host is an answer,
// and so a success.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

func (c *checker) request(ctx context.Context, t target) (*http.Request, error) {
	get := t.probe.HTTPGet
	address, err := t.address(get.Host, get.Port)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(get.Path)
	if err != nil {
		u = &url.URL{Path: get.Path} // as it stands
	}
	if u.Scheme = strings.ToLower(string(get.Scheme)); u.Scheme == "" {
		u.Scheme = "http"
	}
	u.Host = address
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range get.HTTPHeaders {
		req.Header.Add(h.Name, h.Value)
	}
	if _, given := req.Header["User-Agent"]; !given {
		req.Header.Set("User-Agent", c.userAgent)
	}
	if _, given := req.Header["Accept"]; !given {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept") // given as empty: not to be sent
	}
	req.Host = req.Header.Get("Host")
	return req, nil
}

func (c *checker) tcpSocket(ctx context.Context, t target) (bool, string, error) {
	address, err := t.address(t.probe.TCPSocket.Host, t.probe.TCPSocket.Port)
	if err != nil {
		return false, "", err
	}
	dctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	conn, err := c.dial(dctx, "tcp", address)
	if err != nil {
		return failed(ctx, err)
	}
	_ = conn.Close()
	return true, "", nil
}

func (c *checker) grpc(ctx context.Context, t target) (bool, string, error) {
	address, err := t.address("", intstr.FromInt32(t.probe.GRPC.Port))
	if err != nil {
		return false, "", err
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithUserAgent(c.userAgent),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return c.dial(ctx, "tcp", address)
		}))
	if err != nil {
		return false, "", err
	}
	defer conn.Close()

	gctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	req := &healthpb.HealthCheckRequest{}
	if t.probe.GRPC.Service != nil {
		req.Service = *t.probe.GRPC.Service
	}
	res, err := healthpb.NewHealthClient(conn).Check(gctx, req)
	switch {
	case grpcstatus.Code(err) == codes.Unimplemented:
		return false, "this server does not implement the grpc health protocol (grpc.health.v1.Health)", nil
	case err != nil:
		return failed(ctx, err)
	case res.GetStatus() != healthpb.HealthCheckResponse_SERVING:
		return false, fmt.Sprintf("service unhealthy (responded with %q)", res.GetStatus()), nil
	default:
		return true, "service healthy", nil
	}
}

// failed makes a failed attempt of an error, unless it came of our own stopping.
func failed(ctx context.Context, err error) (bool, string, error) {
	if ctx.Err() != nil {
		return false, "", context.Cause(ctx)
	}
	return false, err.Error(), nil
}

// address is where to connect to: the host that the probe names or the pod's.
func (t target) address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.host
	}
	if host == "" {
		return "", errNoAddress
	}
	n, err := portNumber(port, t.container)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(n)), nil
}

// portNumber resolves a port that may be the name of one of the container's.
func portNumber(port intstr.IntOrString, c *v1.Container) (int, error) {
	n := int(port.IntVal)
	if port.Type == intstr.String {
		n = 0
		for i := range c.Ports {
			if c.Ports[i].Name == port.StrVal {
				n = int(c.Ports[i].ContainerPort)
			}
		}
		if n == 0 {
			var err error
			if n, err = strconv.Atoi(port.StrVal); err != nil {
				return 0, fmt.Errorf("container %q has no port named %q", c.Name, port.StrVal)
			}
		}
	}
	if n <= 0 || n > 65535 {
		return 0, fmt.Errorf("port %s of container %q is not between 1 and 65535", port.String(), c.Name)
	}
	return n, nil
}

// podAddress is the address at which a pod is probed: the one of the host's family,
// else the first; for pods on the host's network the host's.
func podAddress(pod *v1.Pod, ips []string, hostIP string) string {
	if runtime.HasHostNetwork(pod) {
		return hostIP
	}
	host, _ := netip.ParseAddr(hostIP)
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil && a.Unmap().Is4() == host.Unmap().Is4() {
			return ip
		}
	}
	if len(ips) > 0 {
		return ips[0]
	}
	return ""
}
