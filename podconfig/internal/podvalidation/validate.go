package podvalidation

import (
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Options are the settings of [Validate].
type Options struct {
	// Allow are the references to API objects that are accepted.
	Allow AllowedRefs
	// Updated accepts ephemeral containers, which cannot be set on creation.
	Updated bool
	// anyNode accepts a pod without the name of a node.
	anyNode bool
}

// AllowedRefs are those of package manifest.
type AllowedRefs struct{ Env, PullSecrets, Volumes, All bool }

// Validate checks a pod that has its defaults. It checks the fields that a node acts on, as
// the API server (1.37) checks them on creation: metadata, containers, ports,
// environment, volumes and mounts, probes and hooks, resources, security, DNS and host
// names, tolerations. It ignores fields for schedulers, Windows options, and the content
// of network volumes. The fields of the errors are those of the API server, below root.
//
// It also returns an error for each reference that [Options.Allow] does not permit.
func Validate(pod *v1.Pod, root *field.Path, opts Options) field.ErrorList {
	meta, spec := root.Child("metadata"), root.Child("spec")
	c := &checker{pod: pod, spec: &pod.Spec, anyNode: opts.anyNode, claims: map[string]bool{}}
	for i := range pod.Spec.ResourceClaims {
		c.claims[pod.Spec.ResourceClaims[i].Name] = true
	}
	c.errs = apivalidation.ValidateObjectMeta(&pod.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, meta)
	c.metadata(meta)
	c.podSpec(spec)
	if ephemeral := spec.Child("ephemeralContainers"); opts.Updated {
		c.ephemeralContainers(ephemeral)
	} else {
		c.forbiddenIf(len(pod.Spec.EphemeralContainers) > 0, ephemeral, "cannot be set on create")
	}
	if !opts.Allow.All {
		c.objectReferences(spec, opts.Allow)
		c.emptyProjections(spec.Child("volumes"))
	}
	return c.errs
}

// checker collects the errors of one pod.
type checker struct {
	pod  *v1.Pod
	spec *v1.PodSpec
	// anyNode is that of [Options].
	anyNode bool
	// volumes are the valid volumes of the pod, by name.
	volumes map[string]*v1.Volume
	// claims are the names of the pod's resource claims.
	claims map[string]bool
	errs   field.ErrorList
}

func (c *checker) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// invalid adds an error for each of the messages.
func (c *checker) invalid(path *field.Path, value any, msgs ...string) {
	for _, msg := range msgs {
		c.add(field.Invalid(path, value, msg))
	}
}

func (c *checker) required(path *field.Path, detail string) { c.add(field.Required(path, detail)) }

func (c *checker) forbidden(path *field.Path, detail string) { c.add(field.Forbidden(path, detail)) }

func (c *checker) forbiddenIf(set bool, path *field.Path, detail string) {
	if set {
		c.forbidden(path, detail)
	}
}

func (c *checker) duplicate(path *field.Path, value any) { c.add(field.Duplicate(path, value)) }

// label checks a required DNS label.
func (c *checker) label(path *field.Path, value string) {
	if value == "" {
		c.required(path, "")
	} else {
		c.invalid(path, value, validation.IsDNS1123Label(value)...)
	}
}

// nonNegative checks a number.
func (c *checker) nonNegative(path *field.Path, value int64) {
	c.add(apivalidation.ValidateNonnegativeField(value, path)...)
}

// oneOf checks a required enumeration value.
func oneOf[T ~string](c *checker, path *field.Path, value T, words ...T) {
	if value == "" {
		c.required(path, "")
		return
	}
	supported(c, path, value, words...)
}

// supported checks an enumeration value. An empty value is not special.
func supported[T ~string](c *checker, path *field.Path, value T, words ...T) {
	if !slices.Contains(words, value) {
		c.add(field.NotSupported(path, value, words))
	}
}

// unique is a set that calls twice for values that it already holds.
type unique[K comparable] sets.Set[K]

func (u unique[K]) add(k K, twice func()) {
	if _, there := u[k]; there {
		twice()
		return
	}
	u[k] = sets.Empty{}
}

// allContainers yields the containers of all kinds with their paths.
func (c *checker) allContainers(spec *field.Path) iter.Seq2[*field.Path, *v1.Container] {
	return func(yield func(*field.Path, *v1.Container) bool) {
		indexes := map[podspec.ContainerKind]int{}
		for kind, ctr := range podspec.Containers(c.spec) {
			if !yield(spec.Child(listOf(kind)).Index(indexes[kind]), ctr) {
				return
			}
			indexes[kind]++
		}
	}
}

// setFields returns the JSON names of the fields that are not nil.
func setFields[T v1.VolumeSource | v1.VolumeProjection | v1.PodSecurityContext | v1.SecurityContext](s *T) []string {
	var names []string
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

func (c *checker) metadata(path *field.Path) {
	if podspec.IsMirror(c.pod) {
		c.forbidden(path.Child("annotations").Key(podspec.AnnotationConfigMirror),
			"marks the API server's copy of a static pod, which never runs; remove it, and metadata.uid, from the manifest")
	}
	c.uid(path.Child("uid"))
}

// uid checks that the UID is a valid file name: it names the pod's directory.
func (c *checker) uid(path *field.Path) {
	if uid := c.pod.UID; uid != "" && !podspec.IsFileName(uid) {
		c.add(field.Invalid(path, string(uid), "names the pod's directory, so it must be the name of a file; leave "+
			"it out or use a UUID"))
	}
}

func (c *checker) podSpec(path *field.Path) {
	s := c.spec
	if s.TerminationGracePeriodSeconds == nil {
		c.required(path.Child("terminationGracePeriodSeconds"), "")
	}
	c.podVolumes(path.Child("volumes"))
	c.containers(path)
	c.podResources(path.Child("resources"))
	c.requirements(path.Child("overhead"), &v1.ResourceRequirements{Limits: s.Overhead}, containerResource)
	oneOf(c, path.Child("restartPolicy"), s.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure,
		v1.RestartPolicyNever)
	c.podSecurity(path)
	c.network(path)
	c.hostnames(path)
	c.tolerations(path.Child("tolerations"))

	if s.NodeName != "" {
		c.invalid(path.Child("nodeName"), s.NodeName, validation.IsDNS1123Subdomain(s.NodeName)...)
	} else if !c.anyNode {
		c.required(path.Child("nodeName"), "a static pod belongs to a node")
	}
	if d := s.ActiveDeadlineSeconds; d != nil && (*d < 1 || *d > math.MaxInt32) {
		c.invalid(path.Child("activeDeadlineSeconds"), *d, validation.InclusiveRangeError(1, math.MaxInt32))
	}
	if r := s.RuntimeClassName; r != nil {
		c.invalid(path.Child("runtimeClassName"), *r, apivalidation.NameIsDNSSubdomain(*r, false)...)
	}
	if p := s.PriorityClassName; p != "" {
		c.invalid(path.Child("priorityClassName"), p, apivalidation.NameIsDNSSubdomain(p, false)...)
	}
	if p := s.PreemptionPolicy; p != nil {
		oneOf(c, path.Child("preemptionPolicy"), *p, v1.PreemptLowerPriority, v1.PreemptNever)
	}
	if a := s.ServiceAccountName; a != "" {
		c.invalid(path.Child("serviceAccountName"), a, apivalidation.ValidateServiceAccountName(a, false)...)
	}
	for i, g := range s.ReadinessGates {
		c.invalid(path.Child("readinessGates").Index(i).Child("conditionType"), g.ConditionType,
			validation.IsQualifiedName(string(g.ConditionType))...)
	}
	c.add(metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
	if len(s.SchedulingGates) > 0 {
		c.forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared, and a "+
			"static pod has a node from the start")
	}
	c.os(path)
}

// network checks DNS settings and host aliases.
func (c *checker) network(path *field.Path) {
	s := c.spec
	oneOf(c, path.Child("dnsPolicy"), s.DNSPolicy, v1.DNSClusterFirstWithHostNet, v1.DNSClusterFirst,
		v1.DNSDefault, v1.DNSNone)
	c.dnsConfig(path.Child("dnsConfig"))
	for i, alias := range s.HostAliases {
		path := path.Child("hostAliases").Index(i)
		c.add(validation.IsValidIPForLegacyField(path.Child("ip"), alias.IP, true, nil)...)
		for j, name := range alias.Hostnames {
			c.invalid(path.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain(name)...)
		}
	}
}

// Limits of a DNS configuration. They are the limits of resolvers (API reference,
// PodDNSConfig).
const (
	maxNameservers     = 3
	maxSearchPaths     = 32
	maxSearchPathChars = 2048
)

func (c *checker) dnsConfig(path *field.Path) {
	config := c.spec.DNSConfig
	if c.spec.DNSPolicy == v1.DNSNone {
		if config == nil {
			c.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
		} else if len(config.Nameservers) == 0 {
			c.required(path.Child("nameservers"), "must provide at least one DNS nameserver when `dnsPolicy` is None")
		}
	}
	if config == nil {
		return
	}
	if len(config.Nameservers) > maxNameservers {
		c.invalid(path.Child("nameservers"), config.Nameservers, fmt.Sprintf("must not have more than %d nameservers",
			maxNameservers))
	}
	for i, ip := range config.Nameservers {
		c.add(validation.IsValidIPForLegacyField(path.Child("nameservers").Index(i), ip, true, nil)...)
	}
	if len(config.Searches) > maxSearchPaths {
		c.invalid(path.Child("searches"), config.Searches, fmt.Sprintf("must not have more than %d search paths",
			maxSearchPaths))
	}
	if len(strings.Join(config.Searches, " ")) > maxSearchPathChars {
		c.invalid(path.Child("searches"), config.Searches, fmt.Sprintf("must not have more than %d characters "+
			"(including spaces) in the search list", maxSearchPathChars))
	}
	for i, search := range config.Searches {
		if search != "." {
			search = strings.TrimSuffix(search, ".")
			c.invalid(path.Child("searches").Index(i), search, validation.IsDNS1123SubdomainWithUnderscore(search)...)
		}
	}
	for i, option := range config.Options {
		if option.Name == "" {
			c.required(path.Child("options").Index(i), "must not be empty")
		}
	}
}

func (c *checker) hostnames(path *field.Path) {
	s := c.spec
	if s.Hostname != "" {
		c.label(path.Child("hostname"), s.Hostname)
	}
	if s.Subdomain != "" {
		c.label(path.Child("subdomain"), s.Subdomain)
	}
	if s.HostnameOverride == nil {
		return
	}
	path = path.Child("hostnameOverride")
	if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
		c.forbidden(path, "may not be specified when setHostnameAsFQDN is true")
	}
	if s.HostNetwork {
		c.forbidden(path, "may not be specified when hostNetwork is true")
	}
	const maxHostname = 64 // HOST_NAME_MAX of Linux
	if len(*s.HostnameOverride) > maxHostname {
		c.add(field.TooLong(path, "", maxHostname))
	}
	c.invalid(path, *s.HostnameOverride, validation.IsDNS1123Subdomain(*s.HostnameOverride)...)
}

func (c *checker) tolerations(path *field.Path) {
	for i, t := range c.spec.Tolerations {
		path := path.Index(i)
		if t.Key != "" {
			c.add(metavalidation.ValidateLabelName(t.Key, path.Child("key"))...)
		} else if t.Operator != v1.TolerationOpExists {
			c.invalid(path.Child("operator"), t.Operator, "operator must be Exists when `key` is empty, which means "+
				"\"match all values and all keys\"")
		}
		if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
			c.invalid(path.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
		}
		switch t.Operator {
		case v1.TolerationOpEqual, "":
			c.invalid(path.Child("operator"), t.Value, validation.IsValidLabelValue(t.Value)...)
		case v1.TolerationOpExists:
			if t.Value != "" {
				c.invalid(path.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'")
			}
		default:
			c.add(field.NotSupported(path.Child("operator"), t.Operator, []v1.TolerationOperator{v1.TolerationOpEqual,
				v1.TolerationOpExists}))
		}
		if t.Effect != "" {
			oneOf(c, path.Child("effect"), t.Effect, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule,
				v1.TaintEffectNoExecute)
		}
	}
}
