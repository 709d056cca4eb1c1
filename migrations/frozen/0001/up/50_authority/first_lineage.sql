-- The first lineage: this installation's.
do $$
begin
  perform fence._begin_lineage('installed', 'pyfence was installed');
end
$$;
