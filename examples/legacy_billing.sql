-- An old job that knows nothing of leases. It is not changed; it is started differently:
--
--     pyfence run --resource nightly-billing -- psql -v ON_ERROR_STOP=1 -f legacy_billing.sql
--
-- Started as before, without `pyfence run`, it is refused with LF004.
\set ON_ERROR_STOP on
select coalesce(sum(amount), 0) as total from sale where day = '2026-11-30' \gset
insert into invoice (day, total) values ('2026-11-30', :total)
  on conflict (day) do update set total = excluded.total;
