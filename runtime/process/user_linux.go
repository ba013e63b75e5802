package process

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// nogroup is the group of users that do not exist on the host. It is the kernel's overflow
// group, to which nothing should belong.
const nogroup = 65534

// resolveUser returns the user of a container and the user's home. Only with root it can
// be another user than the server's own.
func resolveUser(sec *criv1.LinuxContainerSecurityContext,
	host *hostFacts) (u supervise.User, home, warning string, err error) {
	refuse := func(format string, args ...any) error {
		return status.Errorf(codes.InvalidArgument, format, args...)
	}
	uid, gid := int64(host.UID), int64(host.GID)
	name := sec.GetRunAsUsername()
	switch {
	case sec.GetRunAsUser() != nil:
		uid = sec.GetRunAsUser().GetValue()
	case name != "":
		found, err := user.Lookup(name)
		if err != nil {
			return u, "", "", refuse("user %q: %v", name, err)
		}
		if uid, err = strconv.ParseInt(found.Uid, 10, 64); err != nil {
			return u, "", "", refuse("user %q has the ID %q, which is not a number", name, found.Uid)
		}
	}
	if uid < 0 || uid > 1<<32-2 {
		return u, "", "", refuse("runAsUser %d is not a user ID", uid)
	}
	entry, lookupErr := user.LookupId(strconv.FormatInt(uid, 10))
	home = "/"
	if lookupErr == nil {
		home = entry.HomeDir
	}
	switch {
	case sec.GetRunAsGroup() != nil:
		if sec.GetRunAsUser() == nil && name == "" {
			return u, "", "", refuse("runAsGroup is set without runAsUser")
		}
		gid = sec.GetRunAsGroup().GetValue()
	case uid != int64(host.UID) && lookupErr == nil:
		if gid, err = strconv.ParseInt(entry.Gid, 10, 64); err != nil {
			return u, "", "", refuse("user %d has the group %q, which is not a number", uid, entry.Gid)
		}
	case uid != int64(host.UID):
		// Container runtimes take group 0 for a user that the image does not have. Here it would
		// be that of the host, which can read what belongs to root's group.
		gid = nogroup
	}
	if gid < 0 || gid > 1<<32-2 {
		return u, "", "", refuse("runAsGroup %d is not a group ID", gid)
	}
	groups := slices.Clone(sec.GetSupplementalGroups())
	if !host.root() {
		switch {
		case uid != int64(host.UID):
			return u, "", "", refuse("runAsUser %d: the agent runs as user %d and only root can run containers as "+
				"another user; leave runAsUser out, or run the agent as root", uid, host.UID)
		case gid != int64(host.GID):
			return u, "", "", refuse("runAsGroup %d: the agent runs with group %d and only root can run containers "+
				"with another; leave runAsGroup out, or run the agent as root", gid, host.GID)
		}
		for _, g := range groups {
			if g != int64(host.GID) && !slices.Contains(host.Groups, int(g)) {
				warning = fmt.Sprintf("group %d of supplementalGroups, fsGroup or a persistent volume has no "+
					"effect: the agent is not in it and does not run as root", g)
			}
		}
		u = supervise.User{UID: uint32(uid), GID: uint32(gid)}
		for _, g := range host.Groups {
			u.Groups = append(u.Groups, uint32(g))
		}
		return u, home, warning, nil
	}
	if sec.GetSupplementalGroupsPolicy() == criv1.SupplementalGroupsPolicy_Merge && lookupErr == nil {
		more, err := entry.GroupIds()
		if err != nil {
			warning = fmt.Sprintf("the groups of user %d are not known: %v", uid, err)
		}
		for _, g := range more {
			if n, err := strconv.ParseInt(g, 10, 64); err == nil && uid != int64(host.UID) {
				groups = append(groups, n)
			}
		}
	}
	groups = append(groups, gid)
	slices.Sort(groups)
	u = supervise.User{UID: uint32(uid), GID: uint32(gid)}
	for _, g := range slices.Compact(groups) {
		if g < 0 || g > 1<<32-2 {
			return u, "", "", refuse("supplemental group %d is not a group ID", g)
		}
		u.Groups = append(u.Groups, uint32(g))
	}
	return u, home, warning, nil
}
