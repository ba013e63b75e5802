package users

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
)

// KubeletIDs returns the pool of a kubelet: the subordinate IDs of the user "kubelet", or the zero Range if the machine
// does not have that user or the program getsubids. It is for [Options].Pool.
func KubeletIDs(ctx context.Context) (Range, error) { return SubordinateIDs(ctx, "kubelet") }

// SubordinateIDs returns the subordinate IDs of a user of the host (/etc/subuid and /etc/subgid, or where the host has
// them), as kubelet finds them: by the program getsubids. The result is the zero Range if the
// user or the program does not exist. It is an error if the user has no IDs, several ranges, or others for groups than
// for users.
func SubordinateIDs(ctx context.Context, name string) (Range, error) {
	if _, err := user.Lookup(name); err != nil {
		if errors.As(err, new(user.UnknownUserError)) {
			return Range{}, nil
		}
		return Range{}, fmt.Errorf("looking up the user %q: %w", name, err)
	}
	program, err := exec.LookPath("getsubids")
	if errors.Is(err, exec.ErrNotFound) {
		return Range{}, nil
	}
	if err != nil {
		return Range{}, err
	}
	output := func(kind string, args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, program, append(args, name)...)
		var failure bytes.Buffer
		cmd.Stderr = &failure
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("getsubids: the subordinate %s IDs of %q: %w: %s", kind, name, err,
				strings.TrimSpace(failure.String()))
		}
		return string(out), nil
	}
	uids, err := output("user")
	if err != nil {
		return Range{}, err
	}
	gids, err := output("group", "-g")
	if err != nil {
		return Range{}, err
	}
	if uids != gids {
		return Range{}, fmt.Errorf("the subordinate user and group IDs of %q differ: %q and %q", name, uids, gids)
	}
	return parseSubordinateIDs(uids)
}

// parseSubordinateIDs returns the range in the output of getsubids, such as "0: kubelet 65536 7208960".
func parseSubordinateIDs(out string) (Range, error) {
	fields := strings.Fields(out)
	if len(fields) != 4 || strings.Count(strings.TrimSpace(out), "\n") > 0 {
		return Range{}, fmt.Errorf("getsubids printed %q, not one range", out)
	}
	first, err := strconv.ParseUint(fields[2], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("getsubids printed %q: %w", out, err)
	}
	length, err := strconv.ParseUint(fields[3], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("getsubids printed %q: %w", out, err)
	}
	return Range{First: uint32(first), Length: uint32(length)}, nil
}
