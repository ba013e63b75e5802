package podvalidation

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// hooks checks the probes and lifecycle hooks of a container.
func (c *checker) hooks(path *field.Path, ctr *v1.Container) {
	c.probe(path.Child("livenessProbe"), ctr.LivenessProbe, true)
	c.probe(path.Child("startupProbe"), ctr.StartupProbe, true)
	c.probe(path.Child("readinessProbe"), ctr.ReadinessProbe, false)
	if ctr.Lifecycle == nil {
		return
	}
	path = path.Child("lifecycle")
	if h := ctr.Lifecycle.PostStart; h != nil {
		c.handler(path.Child("postStart"), lifecycleHandler(h))
	}
	if h := ctr.Lifecycle.PreStop; h != nil {
		c.handler(path.Child("preStop"), lifecycleHandler(h))
	}
	if s := ctr.Lifecycle.StopSignal; s != nil {
		c.stopSignal(path.Child("stopSignal"), *s)
	}
}

// probe checks a probe. restarts is set if its failure restarts the container.
func (c *checker) probe(path *field.Path, p *v1.Probe, restarts bool) {
	if p == nil {
		return
	}
	c.handler(path, handler{exec: p.Exec, httpGet: p.HTTPGet, tcpSocket: p.TCPSocket, grpc: p.GRPC})
	c.nonNegative(path.Child("initialDelaySeconds"), int64(p.InitialDelaySeconds))
	c.nonNegative(path.Child("timeoutSeconds"), int64(p.TimeoutSeconds))
	c.nonNegative(path.Child("periodSeconds"), int64(p.PeriodSeconds))
	c.nonNegative(path.Child("successThreshold"), int64(p.SuccessThreshold))
	c.nonNegative(path.Child("failureThreshold"), int64(p.FailureThreshold))
	grace := p.TerminationGracePeriodSeconds
	if grace != nil && *grace <= 0 {
		c.invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0")
	}
	switch {
	case restarts && p.SuccessThreshold != 1:
		c.invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1")
	case !restarts && grace != nil:
		c.invalid(path.Child("terminationGracePeriodSeconds"), *grace, "must not be set for readinessProbes")
	}
}

// handler are the actions that probes and hooks have in common.
type handler struct {
	exec      *v1.ExecAction
	httpGet   *v1.HTTPGetAction
	tcpSocket *v1.TCPSocketAction
	grpc      *v1.GRPCAction
	sleep     *v1.SleepAction
}

func lifecycleHandler(h *v1.LifecycleHandler) handler {
	return handler{exec: h.Exec, httpGet: h.HTTPGet, tcpSocket: h.TCPSocket, sleep: h.Sleep}
}

// handler checks that there is exactly one action, and checks that action.
func (c *checker) handler(path *field.Path, h handler) {
	found := false
	action := func(name string, set bool, check func(path *field.Path)) {
		switch {
		case !set:
		case found:
			c.forbidden(path.Child(name), "may not specify more than 1 handler type")
		default:
			found = true
			check(path.Child(name))
		}
	}
	action("exec", h.exec != nil, func(path *field.Path) {
		if len(h.exec.Command) == 0 {
			c.required(path.Child("command"), "")
		}
	})
	action("httpGet", h.httpGet != nil, func(path *field.Path) { c.httpGet(path, h.httpGet) })
	action("tcpSocket", h.tcpSocket != nil, func(path *field.Path) { c.port(path.Child("port"), h.tcpSocket.Port) })
	action("grpc", h.grpc != nil, func(path *field.Path) {
		c.port(path.Child("port"), intstr.FromInt32(h.grpc.Port))
		if h.grpc.Mode != nil {
			supported(c, path.Child("mode"), *h.grpc.Mode, v1.GRPCProbeModePlaintext, v1.GRPCProbeModeTLS)
		}
	})
	action("sleep", h.sleep != nil, func(path *field.Path) {
		grace := c.spec.TerminationGracePeriodSeconds
		if s := h.sleep.Seconds; grace != nil && (s < 0 || s > *grace) {
			c.invalid(path, s, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)",
				*grace))
		}
	})
	if !found {
		c.required(path, "must specify a handler type")
	}
}

func (c *checker) httpGet(path *field.Path, h *v1.HTTPGetAction) {
	if h.Path == "" {
		c.required(path.Child("path"), "")
	}
	c.port(path.Child("port"), h.Port)
	supported(c, path.Child("scheme"), h.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	for _, header := range h.HTTPHeaders {
		c.invalid(path.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name)...)
	}
	if h.Protocol == nil {
		return
	}
	supported(c, path.Child("protocol"), *h.Protocol, v1.HTTPProtocolHTTP1, v1.HTTPProtocolHTTP2)
	switch {
	case *h.Protocol != v1.HTTPProtocolHTTP2:
	case h.Scheme != v1.URISchemeHTTP:
		c.invalid(path.Child("protocol"), *h.Protocol, "is only supported with HTTP (H2C)")
	case h.Host != "":
		c.invalid(path.Child("host"), h.Host, "must be empty when `protocol` is \"HTTP2\"")
	}
}

// port checks the number or name of a port.
func (c *checker) port(path *field.Path, p intstr.IntOrString) {
	if p.Type == intstr.Int {
		c.invalid(path, p.IntValue(), validation.IsValidPortNum(p.IntValue())...)
	} else {
		c.invalid(path, p.StrVal, validation.IsValidPortName(p.StrVal)...)
	}
}
