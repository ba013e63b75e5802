package podvalidation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// containers checks the init and main containers.
func (c *checker) containers(path *field.Path) {
	s := c.spec
	if len(s.Containers) == 0 {
		c.required(path.Child("containers"), "")
	}
	names, hostPorts := unique[string]{}, unique[string]{}
	for i := range s.Containers {
		path, ctr := path.Child("containers").Index(i), &s.Containers[i]
		c.container(path, ctr, names)
		c.hostPorts(path.Child("ports"), ctr, hostPorts)
		if s.HostNetwork {
			for j, p := range ctr.Ports {
				if p.HostPort != p.ContainerPort {
					c.invalid(path.Child("ports").Index(j).Child("hostPort"), p.HostPort,
						"must match `containerPort` when `hostNetwork` is true")
				}
			}
		}
		c.hooks(path, ctr)
		c.restartRules(path, ctr)
	}
	for i := range s.InitContainers {
		path, ctr := path.Child("initContainers").Index(i), &s.InitContainers[i]
		c.container(path, ctr, names)
		// Init containers run one after the other, so they may use the same host ports.
		c.hostPorts(path.Child("ports"), ctr, unique[string]{})
		c.restartRules(path, ctr)
		if podspec.IsSidecar(ctr) {
			c.hooks(path, ctr)
			continue
		}
		for j, p := range ctr.ResizePolicy {
			if p.RestartPolicy == v1.RestartContainer {
				c.invalid(path.Child("resizePolicy").Index(j).Child("restartPolicy"), p.RestartPolicy,
					"must not be set to 'RestartContainer' for non-sidecar initContainers")
			}
		}
		const detail = "may not be set for init containers without restartPolicy=Always"
		c.forbiddenIf(ctr.Lifecycle != nil, path.Child("lifecycle"), detail)
		c.forbiddenIf(ctr.LivenessProbe != nil, path.Child("livenessProbe"), detail)
		c.forbiddenIf(ctr.ReadinessProbe != nil, path.Child("readinessProbe"), detail)
		c.forbiddenIf(ctr.StartupProbe != nil, path.Child("startupProbe"), detail)
	}
}

// ephemeralContainers checks the containers that were added to a pod.
func (c *checker) ephemeralContainers(path *field.Path) {
	names := unique[string]{}
	for kind, ctr := range podspec.Containers(c.spec) {
		if kind != podspec.EphemeralContainer {
			names[ctr.Name] = sets.Empty{}
		}
	}
	targets := maps.Clone(names)
	for i := range c.spec.EphemeralContainers {
		path, e := path.Index(i), &c.spec.EphemeralContainers[i]
		c.container(path, (*v1.Container)(&e.EphemeralContainerCommon), names)
		if _, ok := targets[e.TargetContainerName]; e.TargetContainerName != "" && !ok {
			c.add(field.NotFound(path.Child("targetContainerName"), e.TargetContainerName))
		}
	}
}

// container checks the fields that all kinds of containers have.
func (c *checker) container(path *field.Path, ctr *v1.Container, names unique[string]) {
	c.label(path.Child("name"), ctr.Name)
	if ctr.Name != "" {
		names.add(ctr.Name, func() { c.duplicate(path.Child("name"), ctr.Name) })
	}
	// An image name that does not parse is accepted. As in a cluster, the pod's status
	// shows it as InvalidImageName.
	if ctr.Image == "" {
		c.required(path.Child("image"), "")
	} else if strings.TrimSpace(ctr.Image) != ctr.Image {
		c.invalid(path.Child("image"), ctr.Image, "must not have leading or trailing whitespace")
	}
	oneOf(c, path.Child("imagePullPolicy"), ctr.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(c, path.Child("terminationMessagePolicy"), ctr.TerminationMessagePolicy, v1.TerminationMessageReadFile,
		v1.TerminationMessageFallbackToLogsOnError)
	c.ports(path.Child("ports"), ctr.Ports)
	c.env(path, ctr)
	c.mounts(path, ctr)
	c.resources(path.Child("resources"), &ctr.Resources)
	c.resizePolicy(path.Child("resizePolicy"), ctr.ResizePolicy)
	c.containerSecurity(path.Child("securityContext"), ctr.SecurityContext)
}

func (c *checker) ports(path *field.Path, ports []v1.ContainerPort) {
	names := unique[string]{}
	for i, p := range ports {
		path := path.Index(i)
		if p.Name != "" {
			if msgs := validation.IsValidPortName(p.Name); len(msgs) > 0 {
				c.invalid(path.Child("name"), p.Name, msgs...)
			} else {
				names.add(p.Name, func() { c.duplicate(path.Child("name"), p.Name) })
			}
		}
		if p.ContainerPort == 0 {
			c.required(path.Child("containerPort"), "")
		} else {
			c.invalid(path.Child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort))...)
		}
		if p.HostPort != 0 {
			c.invalid(path.Child("hostPort"), p.HostPort, validation.IsValidPortNum(int(p.HostPort))...)
		}
		oneOf(c, path.Child("protocol"), p.Protocol, v1.ProtocolSCTP, v1.ProtocolTCP, v1.ProtocolUDP)
	}
}

// hostPorts checks that no host port is used twice.
func (c *checker) hostPorts(path *field.Path, ctr *v1.Container, taken unique[string]) {
	for i, p := range ctr.Ports {
		if p.HostPort != 0 {
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			taken.add(key, func() { c.duplicate(path.Index(i).Child("hostPort"), key) })
		}
	}
}

// envFields are the fields of a pod that environment variables may refer to, beside
// single labels and annotations.
var envFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

func (c *checker) env(path *field.Path, ctr *v1.Container) {
	for i := range ctr.Env {
		v, path := &ctr.Env[i], path.Child("env").Index(i)
		if v.Name == "" {
			c.required(path.Child("name"), "")
		} else {
			c.invalid(path.Child("name"), v.Name, validation.IsRelaxedEnvVarName(v.Name)...)
		}
		if v.ValueFrom == nil {
			continue
		}
		path = path.Child("valueFrom")
		sources := c.envSource(path, v.ValueFrom)
		switch {
		case sources == 0:
			c.invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "+
				"`secretKeyRef` or `fileKeyRef`")
		case v.Value != "":
			c.invalid(path, "", "may not be specified when `value` is not empty")
		case sources > 1:
			c.invalid(path, "", "may not have more than one field specified at a time")
		}
	}
	c.envFrom(path.Child("envFrom"), ctr.EnvFrom)
}

func (c *checker) envFrom(path *field.Path, sources []v1.EnvFromSource) {
	for i := range sources {
		from, item := &sources[i], path.Index(i)
		if from.Prefix != "" {
			c.invalid(item.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName(from.Prefix)...)
		}
		if from.ConfigMapRef != nil {
			c.objectName(item.Child("configMapRef", "name"), from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			c.objectName(item.Child("secretRef", "name"), from.SecretRef.Name)
		}
		switch {
		case from.ConfigMapRef == nil && from.SecretRef == nil:
			c.invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
		case from.ConfigMapRef != nil && from.SecretRef != nil:
			c.invalid(path, "", "may not have more than one field specified at a time")
		}
	}
}

// envSource checks the sources of a variable's value, and returns their number.
func (c *checker) envSource(path *field.Path, from *v1.EnvVarSource) (sources int) {
	if f := from.FieldRef; f != nil {
		sources++
		c.fieldRef(path.Child("fieldRef"), f, envFields)
	}
	if f := from.ResourceFieldRef; f != nil {
		sources++
		c.resourceFieldRef(path.Child("resourceFieldRef"), f, false)
	}
	if k := from.ConfigMapKeyRef; k != nil {
		sources++
		c.objectKey(path.Child("configMapKeyRef"), k.Name, k.Key)
	}
	if k := from.SecretKeyRef; k != nil {
		sources++
		c.objectKey(path.Child("secretKeyRef"), k.Name, k.Key)
	}
	if k := from.FileKeyRef; k != nil {
		sources++
		c.fileKey(path.Child("fileKeyRef"), k)
	}
	return sources
}

// objectName checks the name of a secret or config map.
func (c *checker) objectName(path *field.Path, name string) {
	if name == "" {
		c.required(path, "")
	} else {
		c.invalid(path, name, validation.IsDNS1123Subdomain(name)...)
	}
}

func (c *checker) objectKey(path *field.Path, name, key string) {
	c.invalid(path.Child("name"), name, validation.IsDNS1123Subdomain(name)...)
	if key == "" {
		c.required(path.Child("key"), "")
	} else {
		c.invalid(path.Child("key"), key, validation.IsConfigMapKey(key)...)
	}
}

func (c *checker) fileKey(path *field.Path, k *v1.FileKeySelector) {
	if k.Key == "" {
		c.required(path.Child("key"), "")
	} else {
		c.invalid(path.Child("key"), k.Key, validation.IsRelaxedEnvVarName(k.Key)...)
	}
	if k.Path == "" {
		c.required(path.Child("path"), "")
	} else {
		c.noBacksteps(path.Child("path"), k.Path)
	}
	name := path.Child("volumeName")
	c.label(name, k.VolumeName)
	if v := c.volumes[k.VolumeName]; v == nil {
		c.add(field.NotFound(name, k.VolumeName))
	} else if v.EmptyDir == nil {
		c.invalid(name, k.VolumeName, "referenced volume must be of type emptyDir")
	}
}

// podFields are all fields that the API accepts as references. Some of them are not
// permitted anywhere in a pod.
var podFields = append([]string{"spec.restartPolicy", "spec.schedulerName", "status.phase"},
	slices.Concat(envFields, downwardFields)...)

// fieldRef checks a reference to a field of the pod, from a place where references to
// the known fields are permitted.
func (c *checker) fieldRef(path *field.Path, f *v1.ObjectFieldSelector, known []string) {
	if f.FieldPath == "" {
		c.required(path.Child("fieldPath"), "")
		return
	}
	if f.APIVersion != "v1" {
		c.invalid(path.Child("fieldPath"), f.FieldPath, fmt.Sprintf("unsupported pod version: %s", f.APIVersion))
		return
	}
	full := f.FieldPath
	if full == "spec.host" {
		full = "spec.nodeName" // its old name
	}
	name, rest, subscripted := strings.Cut(full, "['")
	key, closed := strings.CutSuffix(rest, "']")
	switch {
	case subscripted && closed && name == "metadata.annotations":
		c.invalid(path, key, validation.IsQualifiedName(strings.ToLower(key))...)
	case subscripted && closed && name == "metadata.labels":
		c.invalid(path, key, validation.IsQualifiedName(key)...)
	case slices.Contains(known, full):
	case slices.Contains(podFields, full):
		c.add(field.NotSupported(path.Child("fieldPath"), f.FieldPath, known))
	default:
		c.invalid(path.Child("fieldPath"), f.FieldPath, "no such field, or not supported in references; supported are "+
			strings.Join(known, ", "))
	}
}

// resourceFields are the resources of a container that may be referred to.
var resourceFields = []string{
	"limits.cpu", "limits.ephemeral-storage", "limits.memory",
	"requests.cpu", "requests.ephemeral-storage", "requests.memory",
}

// resourceFieldRef checks a reference to a resource of a container. needsContainer
// requires the name of the container.
func (c *checker) resourceFieldRef(path *field.Path, f *v1.ResourceFieldSelector, needsContainer bool) {
	hugePages := strings.HasPrefix(f.Resource, "limits.hugepages-") ||
		strings.HasPrefix(f.Resource, "requests.hugepages-")
	switch {
	case needsContainer && f.ContainerName == "":
		c.required(path.Child("containerName"), "")
	case f.Resource == "":
		c.required(path.Child("resource"), "")
	case !hugePages && !slices.Contains(resourceFields, f.Resource):
		c.add(field.NotSupported(path.Child("resource"), f.Resource, resourceFields))
	}
	if f.Divisor.IsZero() || !hugePages && !slices.Contains(resourceFields, f.Resource) {
		return
	}
	divisors := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
	if strings.HasSuffix(f.Resource, ".cpu") {
		divisors = []string{"1m", "1"}
	}
	if !slices.Contains(divisors, f.Divisor.String()) {
		c.invalid(path.Child("divisor"), f.Divisor.String(), "only "+strings.Join(divisors, ", ")+
			" are supported with "+f.Resource)
	}
}

func (c *checker) resizePolicy(path *field.Path, policies []v1.ContainerResizePolicy) {
	seen := unique[v1.ResourceName]{}
	for i, p := range policies {
		seen.add(p.ResourceName, func() { c.duplicate(path.Index(i), p.ResourceName) })
		oneOf(c, path, p.ResourceName, v1.ResourceCPU, v1.ResourceMemory)
		oneOf(c, path, p.RestartPolicy, v1.NotRequired, v1.RestartContainer)
		if c.spec.RestartPolicy == v1.RestartPolicyNever && p.RestartPolicy != v1.NotRequired {
			c.invalid(path, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

// Limits of restart rules (KEP-5307).
const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// restartRules checks a container's own restart policy and its rules.
func (c *checker) restartRules(path *field.Path, ctr *v1.Container) {
	rules := path.Child("restartPolicyRules")
	if p := ctr.RestartPolicy; p != nil {
		supported(c, path.Child("restartPolicy"), *p, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever,
			v1.ContainerRestartPolicyOnFailure)
	} else if len(ctr.RestartPolicyRules) > 0 {
		c.required(path.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
		return
	}
	if n := len(ctr.RestartPolicyRules); n > maxRestartRules {
		c.add(field.TooMany(rules, n, maxRestartRules))
	}
	for i, r := range ctr.RestartPolicyRules {
		path := rules.Index(i)
		supported(c, path.Child("action"), r.Action, v1.ContainerRestartRuleActionRestart,
			v1.ContainerRestartRuleActionRestartAllContainers)
		if r.ExitCodes == nil {
			c.required(path.Child("exitCodes"), "must be specified")
			continue
		}
		supported(c, path.Child("exitCodes", "operator"), r.ExitCodes.Operator, v1.ContainerRestartRuleOnExitCodesOpIn,
			v1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(r.ExitCodes.Values); n > maxExitCodes {
			c.add(field.TooMany(path.Child("exitCodes", "values"), n, maxExitCodes))
		}
	}
}
