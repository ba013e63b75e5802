package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// RBAC is an [Authorizer] with rules of its own, for nodes without an API server. It decides as
// the API server does with the same objects.
type RBAC struct{ policy *file[[]grant] }

// grant is a binding: rules that some users have.
type grant struct {
	subjects []rbacv1.Subject
	rules    []rbacv1.PolicyRule
}

// NewRBAC returns an authorizer for the cluster roles and their bindings. Its error names bindings
// of roles that do not exist.
func NewRBAC(roles []rbacv1.ClusterRole, bindings []rbacv1.ClusterRoleBinding) (*RBAC, error) {
	grants, err := grantsOf(roles, bindings)
	if err != nil {
		return nil, err
	}
	return &RBAC{&file[[]grant]{value: grants}}, nil
}

// NewRBACFile returns an authorizer for the manifests of ClusterRoles and ClusterRoleBindings
// (rbac.authorization.k8s.io/v1) in a file, in YAML or JSON. The file is read again when it changes,
// within 10 seconds; while it cannot be used, the rules are those of before.
// A zero log is that of package slog.
func NewRBACFile(path string, log logr.Logger) (*RBAC, error) {
	log = logging.OrDefault(log)
	policy, err := newFile(path, "permissions of clients", log, parsePolicy)
	if err != nil {
		return nil, err
	}
	return &RBAC{policy}, nil
}

func parsePolicy(content []byte) ([]grant, error) {
	var roles []rbacv1.ClusterRole
	var bindings []rbacv1.ClusterRoleBinding
	docs := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	defer docs.Close()
	buf := make([]byte, len(content)+1)
	for {
		n, err := docs.Read(buf)
		if errors.Is(err, io.EOF) {
			return grantsOf(roles, bindings)
		}
		if err != nil {
			return nil, err
		}
		doc := buf[:n]
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			return nil, err
		}
		if kind == (metav1.TypeMeta{}) { // an empty document
			continue
		}
		if kind.APIVersion != rbacv1.SchemeGroupVersion.String() {
			return nil, fmt.Errorf("%s %s: want ClusterRole and ClusterRoleBinding of %s", kind.APIVersion, kind.Kind,
				rbacv1.SchemeGroupVersion)
		}
		switch kind.Kind {
		case "ClusterRole":
			var role rbacv1.ClusterRole
			if err := yaml.UnmarshalStrict(doc, &role); err != nil {
				return nil, err
			}
			roles = append(roles, role)
		case "ClusterRoleBinding":
			var binding rbacv1.ClusterRoleBinding
			if err := yaml.UnmarshalStrict(doc, &binding); err != nil {
				return nil, err
			}
			bindings = append(bindings, binding)
		default:
			return nil, fmt.Errorf("%s: want ClusterRole and ClusterRoleBinding", kind.Kind)
		}
	}
}

func grantsOf(roles []rbacv1.ClusterRole, bindings []rbacv1.ClusterRoleBinding) ([]grant, error) {
	byName := map[string][]rbacv1.PolicyRule{}
	for i := range roles {
		byName[roles[i].Name] = roles[i].Rules
	}
	var grants []grant
	var errs []error
	for i := range bindings {
		ref := bindings[i].RoleRef
		rules, ok := byName[ref.Name]
		if !ok || ref.Kind != "ClusterRole" {
			errs = append(errs, fmt.Errorf("ClusterRoleBinding %s: there is no %s %s", bindings[i].Name,
				ref.Kind, ref.Name))
			continue
		}
		grants = append(grants, grant{bindings[i].Subjects, rules})
	}
	return grants, errors.Join(errs...)
}

// Authorize implements [Authorizer].
func (r *RBAC) Authorize(_ context.Context, user *authenticationv1.UserInfo,
	what *authorizationv1.ResourceAttributes) (bool, error) {
	for _, g := range r.policy.get() {
		if slices.ContainsFunc(g.subjects, func(s rbacv1.Subject) bool { return isSubject(user, s) }) &&
			slices.ContainsFunc(g.rules, func(rule rbacv1.PolicyRule) bool { return allows(rule, what) }) {
			return true, nil
		}
	}
	return false, nil
}

func isSubject(user *authenticationv1.UserInfo, s rbacv1.Subject) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return user.Username == s.Name
	case rbacv1.GroupKind:
		return slices.Contains(user.Groups, s.Name)
	case rbacv1.ServiceAccountKind:
		return s.Namespace != "" && user.Username == "system:serviceaccount:"+s.Namespace+":"+s.Name
	default:
		return false
	}
}

// allows reports whether the rule allows it, as the API server judges (RuleAllows in its
// authorizer of RBAC).
func allows(rule rbacv1.PolicyRule, what *authorizationv1.ResourceAttributes) bool {
	resource := what.Resource
	if what.Subresource != "" {
		resource += "/" + what.Subresource
	}
	anyOf := func(list []string, values ...string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(values, s) })
	}
	return anyOf(rule.Verbs, rbacv1.VerbAll, what.Verb) &&
		anyOf(rule.APIGroups, rbacv1.APIGroupAll, what.Group) &&
		(anyOf(rule.Resources, rbacv1.ResourceAll, resource) || what.Subresource != "" &&
			anyOf(rule.Resources, "*/"+what.Subresource)) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, what.Name))
}
