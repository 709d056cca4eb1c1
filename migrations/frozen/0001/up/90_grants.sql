-- PUBLIC gets nothing, whatever the database's default privileges say. Roles get theirs from fence._role_grants.
revoke all on all tables in schema fence from public;
revoke all on all sequences in schema fence from public;
revoke all on all functions in schema fence from public;
