package translate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// Paths that are hidden from containers, and paths that are read-only in them, unless
// procMount is Unmasked. The lists are those of moby, oci/defaults.go.
var (
	maskedPaths = [...]string{
		"/proc/asound",
		"/proc/acpi",
		"/proc/interrupts",
		"/proc/kcore",
		"/proc/keys",
		"/proc/latency_stats",
		"/proc/timer_list",
		"/proc/timer_stats",
		"/proc/sched_debug",
		"/proc/scsi",
		"/sys/firmware",
		"/sys/devices/virtual/powercap",
	}
	readonlyPaths = [...]string{
		"/proc/bus",
		"/proc/fs",
		"/proc/irq",
		"/proc/sys",
		"/proc/sysrq-trigger",
	}
)

// effectiveSecurity returns the security context of a container, with the fields that it
// does not set from its pod's. It omits profiles, see profiles.go.
func effectiveSecurity(pod *v1.Pod, c *v1.Container) v1.SecurityContext {
	var sc v1.SecurityContext
	if c.SecurityContext != nil {
		sc = *c.SecurityContext
	}
	if p := pod.Spec.SecurityContext; p != nil {
		sc.SELinuxOptions = orElse(sc.SELinuxOptions, p.SELinuxOptions)
		sc.RunAsUser = orElse(sc.RunAsUser, p.RunAsUser)
		sc.RunAsGroup = orElse(sc.RunAsGroup, p.RunAsGroup)
		sc.RunAsNonRoot = orElse(sc.RunAsNonRoot, p.RunAsNonRoot)
	}
	return sc
}

func orElse[T any](first, second *T) *T {
	if first != nil {
		return first
	}
	return second
}

// containerSecurity returns a container's security context in CRI's type.
func containerSecurity(in *Container) (*criv1.LinuxContainerSecurityContext, error) {
	pod := in.Pod.Spec
	sc := effectiveSecurity(pod, in.Spec)
	uid, username := in.Image.user()
	if err := verifyNonRoot(in, &sc, uid, username); err != nil {
		return nil, err
	}
	out := &criv1.LinuxContainerSecurityContext{
		Capabilities:   capabilities(sc.Capabilities),
		SelinuxOptions: seLinux(sc.SELinuxOptions),
		RunAsUser:      int64Value(sc.RunAsUser),
		RunAsGroup:     int64Value(sc.RunAsGroup),
		Privileged:     isTrue(sc.Privileged),
		ReadonlyRootfs: isTrue(sc.ReadOnlyRootFilesystem),
		NoNewPrivs:     sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
	}
	if out.RunAsUser == nil {
		out.RunAsUser = int64Value(uid)
		out.RunAsUsername = username
	}
	if sc.ProcMount == nil || *sc.ProcMount != v1.UnmaskedProcMount {
		out.MaskedPaths = slices.Concat(maskedPaths[:], in.Pod.Node.MaskedPaths)
		out.ReadonlyPaths = slices.Clone(readonlyPaths[:])
	}
	var err error
	if out.Seccomp, err = seccomp(in); err != nil {
		return nil, err
	}
	//lint:ignore SA1019 runtimes older than CRI 0.29 read only this field
	if out.Apparmor, out.ApparmorProfile, err = appArmor(pod, in.Spec); err != nil {
		return nil, err
	}
	if out.NamespaceOptions, err = containerNamespaces(in); err != nil {
		return nil, err
	}
	out.SupplementalGroups = podGroups(in.Pod)
	out.SupplementalGroupsPolicy, err = groupsPolicy(pod)
	return out, err
}

// sandboxSecurity returns the security context of the sandbox.
func sandboxSecurity(in *Pod) (*criv1.LinuxSandboxSecurityContext, error) {
	ns, err := podNamespaces(in, in.Edits.UserNamespace)
	if err != nil {
		return nil, err
	}
	policy, err := groupsPolicy(in.Spec)
	if err != nil {
		return nil, err
	}
	out := &criv1.LinuxSandboxSecurityContext{
		NamespaceOptions:         ns,
		SupplementalGroups:       podGroups(in),
		SupplementalGroupsPolicy: policy,
		// The sandbox itself needs no more, whatever the profiles of its containers.
		Seccomp: &criv1.SecurityProfile{ProfileType: criv1.SecurityProfile_RuntimeDefault},
	}
	for _, c := range podspec.Containers(&in.Spec.Spec) {
		if c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged) {
			out.Privileged = true
		}
	}
	if sc := in.Spec.Spec.SecurityContext; sc != nil {
		out.RunAsUser = int64Value(sc.RunAsUser)
		out.RunAsGroup = int64Value(sc.RunAsGroup)
		out.SelinuxOptions = seLinux(sc.SELinuxOptions)
	}
	return out, nil
}

// verifyNonRoot enforces runAsNonRoot. A user name of the image cannot be verified without
// the files of the image, so it is refused; a UID other than 0 is accepted.
func verifyNonRoot(in *Container, sc *v1.SecurityContext, uid *int64, username string) error {
	if !isTrue(sc.RunAsNonRoot) {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", podDescription(in.Pod.Spec), in.Spec.Name)
	switch {
	case sc.RunAsUser != nil && *sc.RunAsUser == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
	case sc.RunAsUser != nil:
		return nil
	case uid == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is "+
			"non-root %s", username, where)
	case *uid == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
	}
	if errs := validation.IsValidUserID(*uid); len(errs) > 0 {
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)): %s %s",
			*uid, math.MaxInt32, strings.Join(errs, "; "), where)
	}
	return nil
}

// podDescription returns the name of a pod in kubelet's messages.
func podDescription(pod *v1.Pod) string {
	return pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")"
}

// podGroups returns the supplemental groups of the first process of each container.
func podGroups(in *Pod) []int64 {
	var groups []int64
	if sc := in.Spec.Spec.SecurityContext; sc != nil {
		if sc.FSGroup != nil {
			groups = append(groups, *sc.FSGroup)
		}
		groups = append(groups, sc.SupplementalGroups...)
	}
	for _, g := range in.Groups {
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// groupsPolicy returns whether the groups of the image's /etc/group are added.
func groupsPolicy(pod *v1.Pod) (criv1.SupplementalGroupsPolicy, error) {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil {
		return criv1.SupplementalGroupsPolicy_Merge, nil
	}
	switch policy := *sc.SupplementalGroupsPolicy; policy {
	case v1.SupplementalGroupsPolicyMerge:
		return criv1.SupplementalGroupsPolicy_Merge, nil
	case v1.SupplementalGroupsPolicyStrict:
		return criv1.SupplementalGroupsPolicy_Strict, nil
	default:
		return 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", policy)
	}
}

func capabilities(c *v1.Capabilities) *criv1.Capability {
	if c == nil {
		return nil
	}
	out := &criv1.Capability{}
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

func seLinux(o *v1.SELinuxOptions) *criv1.SELinuxOption {
	if o == nil {
		return nil
	}
	return &criv1.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(n *int64) *criv1.Int64Value {
	if n == nil {
		return nil
	}
	return &criv1.Int64Value{Value: *n}
}
