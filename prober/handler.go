package prober

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Handler makes the checks of one type of probe. The types of the API have
// handlers already, see [DefaultHandlers]; others are given in [Options.Handlers].
// The methods are safe for concurrent use.
type Handler interface {
	// Name is the name of the handler in messages, such as "exec".
	Name() string
	// Probe returns the container's probe of this kind if this handler makes it,
	// with its timings and thresholds, and else nil. The probe may be the one in the
	// spec, or one that the handler derives from the pod, such as from an
	// annotation; its action may be empty. Zero timings and thresholds mean the
	// defaults of the API. A termination grace period counts only in the spec.
	//
	// Probe is called for main containers and sidecars, and often. It does no I/O, and
	// its result depends only on its arguments. What it returns is not changed.
	Probe(pod *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *v1.Probe
	// Check makes one check. The outcome is Success, Warning or Failure; the message
	// is the container's answer or the reason, for people. An error means that the
	// check could not be made: the attempt then has no result, and is repeated up to
	// two times at once.
	//
	// Check returns soon after ctx ends. For handlers in [Options.Handlers] ctx ends
	// after Target.Timeout; an error that Check returns after that is a failure of the
	// container.
	Check(ctx context.Context, t Target) (outcome Outcome, message string, err error)
}

// Outcome is what one check has found.
type Outcome string

// The outcomes. Their values are those of kubelet.
const (
	Success Outcome = "success"
	// Warning is a success with a message that the user of the pod should see: it
	// becomes an event.
	Warning Outcome = "warning"
	Failure Outcome = "failure"
	// Unknown means that the check could not be made.
	Unknown Outcome = "unknown"
)

// Target is the instance of a container that is checked. It must not be changed.
type Target struct {
	// Pod is the pod as it was last added, and Container one of its containers.
	Pod       *v1.Pod
	Container *v1.Container
	// ContainerID is the instance.
	ContainerID runtime.ContainerID
	Kind        runtime.ProbeKind
	// Probe is what [Handler.Probe] returned.
	Probe *v1.Probe
	// Timeout is the time that the check may take, from Probe or the API's default.
	Timeout time.Duration
	// Address is the IP address of the pod, or of the host for a pod on its network. It
	// is empty while the pod has none.
	Address string
}

// ErrNoAddress is returned by [Target.HostPort] for a pod without an address.
var ErrNoAddress = errors.New("the pod has no address yet")

// HostPort returns the address to connect to, as [net.Dial] takes it. An empty
// host means Target.Address. A port may be the name of a port of the container.
func (t Target) HostPort(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.Address
	}
	if host == "" {
		return "", ErrNoAddress
	}
	n, err := portNumber(port, t.Container)
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

// podAddress returns the address at which a pod is probed: the address of the
// host's family if there is one, else the first; for a pod on the host's network,
// the host's.
func podAddress(pod *v1.Pod, ips []string, hostIP string) string {
	if podspec.HasHostNetwork(pod) {
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

// DefaultHandlers returns the handlers of the API's probe types: exec, httpGet,
// tcpSocket and grpc, in this order. [New] adds them by itself; they are exported to
// be wrapped. They read UserAgent, H2C and GRPCTLS of the options.
func DefaultHandlers(rt runtime.Execer, opts Options) []Handler {
	// Applications recognize probes by this prefix.
	opts.UserAgent = cmp.Or(opts.UserAgent, "kube-probe/1.37")
	return []Handler{
		execHandler{rt},
		newHTTPHandler(opts),
		tcpHandler{},
		newGRPCHandler(opts),
	}
}

// specProbe returns the probe in the spec if it has the action that a default
// handler makes.
func specProbe(c *v1.Container, kind runtime.ProbeKind, has func(*v1.Probe) bool) *v1.Probe {
	if p := runtime.SpecProbe(c, kind); p != nil && has(p) {
		return p
	}
	return nil
}

// missingHandler takes the probes in the spec that no other handler takes. They
// cannot be made.
type missingHandler struct {
	// known are the names of the handlers that there are.
	known string
}

func (missingHandler) Name() string { return "missing" }

func (missingHandler) Probe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	return runtime.SpecProbe(c, kind)
}

func (h missingHandler) Check(_ context.Context, t Target) (Outcome, string, error) {
	return Unknown, "", fmt.Errorf("no handler makes the %sProbe of container %q; there are handlers for %s", t.Kind,
		t.Container.Name, h.known)
}

// brokenHandler stands for a handler whose Probe panicked.
type brokenHandler struct {
	Handler
	err error
}

func (h brokenHandler) Check(context.Context, Target) (Outcome, string, error) {
	return Unknown, "", fmt.Errorf("handler %s: method Probe: %w", h.Name(), h.err)
}

// chain has the handlers of a manager, in the order in which they are tried.
type chain []*link

// link is a handler of a manager. Links are compared by address, since a handler
// need not be comparable.
type link struct {
	Handler
	// guarded means that the handler came through Options: its panics are
	// recovered and its checks end at their timeout.
	guarded bool
}

func newChain(given, defaults []Handler) chain {
	var c chain
	var names []string
	for _, h := range given {
		c = append(c, &link{h, true})
		names = append(names, h.Name())
	}
	for _, h := range defaults {
		c = append(c, &link{h, false})
		names = append(names, h.Name())
	}
	return append(c, &link{missingHandler{strings.Join(names, ", ")}, false})
}

// find returns the handler that makes the container's probe of this kind, and the
// probe. Both are nil if the container has none.
func (c chain) find(pod *v1.Pod, ctr *v1.Container, kind runtime.ProbeKind) (*link, *v1.Probe) {
	for _, l := range c {
		if l.guarded && !mayBeProbed(pod, ctr) {
			continue
		}
		probe, err := l.probe(pod, ctr, kind)
		if err != nil {
			return &link{brokenHandler{l.Handler, err}, false}, &v1.Probe{}
		}
		if probe != nil {
			return l, probe
		}
	}
	return nil, nil
}

// mayBeProbed reports whether the container is a main one or a sidecar.
func mayBeProbed(pod *v1.Pod, c *v1.Container) bool {
	_, kind := podspec.FindContainer(&pod.Spec, c.Name)
	return kind == podspec.MainContainer || kind == podspec.InitContainer && podspec.IsSidecar(c)
}

func (l *link) probe(pod *v1.Pod, c *v1.Container, kind runtime.ProbeKind) (p *v1.Probe, err error) {
	if !l.guarded {
		return l.Probe(pod, c, kind), nil
	}
	err = runtime.Recover(func() error {
		p = l.Probe(pod, c, kind)
		return nil
	})
	return p, err
}

// maxAttempts is how often a check that could not be made is tried at once before
// it is left to the next period, as in kubelet.
const maxAttempts = 3

// attempt makes a check, repeatedly if it cannot be made.
func (l *link) attempt(ctx context.Context, t Target) (outcome Outcome, message string, err error) {
	for range maxAttempts {
		outcome, message, err = l.check(ctx, t)
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return outcome, message, err
}

// check makes a check once. Without an error the outcome is Success, Warning or
// Failure.
func (l *link) check(ctx context.Context, t Target) (outcome Outcome, message string, err error) {
	if !l.guarded {
		err = runtime.Recover(func() (err error) { // the runtime of exec probes may be wrapped
			outcome, message, err = l.Check(ctx, t)
			return err
		})
		if p := (*runtime.PanicError)(nil); errors.As(err, &p) {
			return Unknown, "", fmt.Errorf("handler %s: %w", l.Name(), err)
		}
		return outcome, message, err
	}
	limited, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	err = runtime.Recover(func() (err error) {
		outcome, message, err = l.Check(limited, t)
		return err
	})
	switch {
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		return Failure, fmt.Sprintf("%s probe timed out after %v", l.Name(), t.Timeout), nil
	case err != nil:
		return Unknown, "", fmt.Errorf("handler %s: %w", l.Name(), err)
	case outcome != Success && outcome != Warning && outcome != Failure:
		return Unknown, "", fmt.Errorf("handler %s: outcome %q: %s", l.Name(), outcome, message)
	}
	return outcome, message, nil
}
