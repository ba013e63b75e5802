package services

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// service is what the variables need of a service. It never changes.
type service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	IP        string `json:"ip"`
	Ports     []port `json:"ports"`
}

type port struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol,omitempty"`
	Number   int32  `json:"number"`
}

// reduce returns what the variables need of the service, or false if it has no variables.
func reduce(s *v1.Service) (service, bool) {
	if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return service{}, false
	}
	r := service{Namespace: s.Namespace, Name: s.Name, IP: s.Spec.ClusterIP}
	for _, p := range s.Spec.Ports {
		r.Ports = append(r.Ports, port{Name: p.Name, Protocol: string(p.Protocol), Number: p.Port})
	}
	return r, true
}

// Variables returns the environment variables of the services, in the order of the names of
// the services. Services without a cluster IP have none.
func Variables(services ...*v1.Service) []v1.EnvVar {
	var reduced []service
	for _, s := range services {
		if r, ok := reduce(s); ok {
			reduced = append(reduced, r)
		}
	}
	env, _ := variables(reduced, math.MaxInt)
	return env
}

// variables returns the variables of the services, and false if they have more bytes than the limit.
func variables(services []service, limit int) (_ []v1.EnvVar, fit bool) {
	services = slices.Clone(services)
	slices.SortFunc(services, func(a, b service) int { return cmp.Compare(a.Name, b.Name) })
	env := environment{left: limit}
	for _, s := range services {
		env.add(s)
	}
	return env.all, env.left >= 0
}

// environment collects variables. What exceeds the limit is left out: a service may have 65,535
// ports, each of which has five variables.
type environment struct {
	all []v1.EnvVar
	// left is how many bytes there may be more, negative if some were left out.
	left int
}

func (e *environment) set(name, value string) {
	if e.left -= len(name) + len(value); e.left >= 0 {
		e.all = append(e.all, v1.EnvVar{Name: name, Value: value})
	}
}

// add adds the variables of one service.
func (e *environment) add(s service) {
	if e.left < 0 || len(s.Ports) == 0 { // a checkpoint may have one without ports
		return
	}
	set := e.set
	name := envName(s.Name)
	set(name+"_SERVICE_HOST", s.IP)
	set(name+"_SERVICE_PORT", strconv.Itoa(int(s.Ports[0].Number)))
	for _, p := range s.Ports {
		if p.Name != "" {
			set(name+"_SERVICE_PORT_"+envName(p.Name), strconv.Itoa(int(p.Number)))
		}
	}
	for i, p := range s.Ports {
		if e.left < 0 {
			return
		}
		number := strconv.Itoa(int(p.Number))
		protocol := cmp.Or(p.Protocol, string(v1.ProtocolTCP))
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(s.IP, number)
		if i == 0 {
			set(name+"_PORT", url)
		}
		link := fmt.Sprintf("%s_PORT_%s_%s", name, number, strings.ToUpper(protocol))
		set(link, url)
		set(link+"_PROTO", strings.ToLower(protocol))
		set(link+"_PORT", number)
		set(link+"_ADDR", s.IP)
	}
}

func envName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// master is the service of the API server, in the namespace default.
const master = "kubernetes"

// ofPod returns the services whose variables the pods of a namespace have. As in kubelet,
// a service kubernetes of their namespace takes the place of the one of default.
func ofPod(all map[string]service, namespace string, links bool) []service {
	var seen []service
	for _, s := range all {
		if links && s.Namespace == namespace {
			seen = append(seen, s)
		}
	}
	_, own := all[key(namespace, master)]
	if m, ok := all[key(metav1.NamespaceDefault, master)]; ok && !(links && own) {
		seen = append(seen, m)
	}
	return seen
}

func key(namespace, name string) string { return namespace + "/" + name }
