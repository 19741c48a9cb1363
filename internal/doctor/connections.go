package doctor

import (
	"context"
	"fmt"
)

// The backend_type of another role's connection is NULL if this role may not see it.
const connectionsSQL = `
SELECT count(*), count(*) FILTER (WHERE a.application_name LIKE 'tidewire%'),
	(SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
	(SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user),
	count(*) FILTER (WHERE a.datname = current_database()), count(*) FILTER (WHERE a.usename = session_user)
FROM pg_stat_activity a WHERE a.datid IS NOT NULL AND a.application_name <> '` + appName + `' AND (a.backend_type IS NULL OR a.backend_type = 'client backend')`

// lookConnections checks whether enough connections are left for one more Tidewire server.
func lookConnections(ctx context.Context, s *session, f *findings) error {
	var used, ours, byDatabase, byRole int64
	var ofDatabase, ofRole int64
	if err := s.QueryRow(ctx, connectionsSQL).Scan(&used, &ours, &ofDatabase, &ofRole, &byDatabase, &byRole); err != nil {
		return err
	}
	need := int64(s.cfg.Connections)
	most := s.settings["max_connections"].number - s.settings["superuser_reserved_connections"].number - s.settings["reserved_connections"].number
	role := ""
	if ours > 0 {
		role = fmt.Sprintf(", %d of them Tidewire's", ours)
	}
	text := fmt.Sprintf("%d of %d in use%s; a server takes up to %d", used, most, role, need)
	raise := fmt.Sprintf("ALTER SYSTEM SET max_connections = '%d';", max(100, 2*(used+need)))
	switch free := most - used; {
	case free < 5 || most < need: // operators and new servers need some
		f.add(Error, text, raise).Advice = needRestart
	case free < need:
		f.add(Warning, text, raise).Advice = needRestart
	}
	if ofDatabase >= 0 && ofDatabase-byDatabase < need {
		f.add(Warning, fmt.Sprintf("the database admits %d connections, %d are in use", ofDatabase, byDatabase), fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT -1;", quoted(s.database)))
	}
	if ofRole >= 0 && ofRole-byRole < need && !s.superuser {
		f.add(Warning, fmt.Sprintf("the role %s may have %d connections, %d are in use", s.sessionRole, ofRole, byRole), fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT -1;", quoted(s.sessionRole)))
	}
	if len(f.list) == 0 {
		f.ok("%s", text)
	}
	return nil
}
