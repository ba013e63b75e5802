// Package nodenet has what the HTTP servers of an agent and its clients have in common: the limit of
// connections ([ConnLimit]), pages that requests share ([SharedPage]), bearer tokens ([BearerToken]), and the
// addresses of the machine ([HostIPs]).
package nodenet
